// Passes over a batch in memory. Samples are laid out cell by cell once, so that each pass is a plain loop over a
// stretch of memory with one shift. Loops have no branches, as nobody can predict which samples are at a bound, and
// several sums at a time, which vectorise in a fixed order: the same bits on every machine.
#pragma once

#include <array>

#include "exact_sums.hpp"
#include "solve.hpp"

namespace fairlayer {

// Discrepancies as the core has them: the response rho(z, s) = argmin_y d(y, z) + s y, its slope -d rho / d s and its
// sensitivity d rho / d z. What a sample needs of its cell's shift is one factor, taken once per cell: a pass over the
// samples has no exponential in it.

// Shifts and logits beyond it count as it, so that products of two exponentials stay finite.
inline constexpr double furthest = 340.0;

struct Response {
    double y, slope;
};

// d(y, z) = (y - z)^2 / 2.
struct Squared {
    static constexpr bool smooth = false;
    static double prepare(double z) { return z; }
    static double factor(double s) { return s; }
    static Response respond(double z, double factor) { return {z - factor, 1.0}; }
    static double sensitivity(double, double) { return 1.0; }
};

// Relative entropy of probabilities; at s = 0 the response is z to the bit.
struct Entropy {
    static constexpr bool smooth = true, below_one = true;
    static double prepare(double z) { return z; }
    static double factor(double s) { return std::exp(std::clamp(s, -furthest, furthest)); }
    static Response respond(double z, double factor) {
        const double against = (1.0 - z) * factor, per = 1.0 / (z + against), y = z * per;
        return {y, y * (against * per)};
    }
    static double sensitivity(double z, double factor) {
        const double per = 1.0 / (z + (1.0 - z) * factor);
        return factor * per * per;
    }
    static double reach(double least, double greatest) {
        return 40.0 + std::max(-std::log(least), -std::log1p(-greatest));
    }
    static bool takes(double least, double greatest) { return least > 0.0 && greatest < 1.0; }
};

// The same of z that are logits, prepared as the odds against: nothing is lost near 0 and 1.
struct Logits {
    static constexpr bool smooth = true, below_one = true;
    static double prepare(double z) { return std::exp(-std::clamp(z, -furthest, furthest)); }
    static double factor(double s) { return std::exp(std::clamp(s, -furthest, furthest)); }
    static Response respond(double odds, double factor) {
        const double product = odds * factor, y = 1.0 / (1.0 + product);
        return {y, product * y * y};
    }
    static double sensitivity(double odds, double factor) { return respond(odds, factor).slope; }
    static double reach(double least, double greatest) {
        return 40.0 + std::max(std::abs(std::log(least)), std::abs(std::log(greatest)));
    }
    static bool takes(double, double) { return true; }
};

// d(y, z) = y log(y / z) - y + z of amounts.
struct GeneralizedKl {
    static constexpr bool smooth = true, below_one = false;
    static double prepare(double z) { return z; }
    static double factor(double s) { return std::exp(std::clamp(-s, -furthest, furthest)); }
    static Response respond(double z, double factor) { return {z * factor, z * factor}; }
    static double sensitivity(double, double factor) { return factor; }
    static double reach(double, double) { return 3.0; }  // amounts grow by the exponential of a shift that goes too far
    static bool takes(double least, double) { return least > 0.0; }
};

// A batch as it came.
template <class T>
struct Batch {
    std::span<const T> z;
    std::span<const std::int32_t> cell;
    std::span<const double> weight;  // (n,), or empty where all are 1
    std::span<const double> lo, hi;  // (n,) or (1,), numbers of the dtype

    std::size_t size() const { return z.size(); }
    bool own_bounds() const { return lo.size() > 1 || hi.size() > 1; }
    double weight_of(std::size_t i) const { return weight.empty() ? 1.0 : weight[i]; }
    double lo_of(std::size_t i) const { return lo.size() > 1 ? lo[i] : lo[0]; }
    double hi_of(std::size_t i) const { return hi.size() > 1 ? hi[i] : hi[0]; }
};

// A response rounded to the output's dtype, before its bounds; never to the end of the interval that responses lie in.
template <class T, class R>
double rounded_response(double raw) {
    double y = double(Float<T>::nearest(raw));
    if constexpr (R::smooth) {
        y = std::max(y, Float<T>::least);
        if constexpr (R::below_one) y = std::min(y, Float<T>::below_one);
    }
    return y;
}

template <class T, class R>
class SamplePasses final : public Passes {
  public:
    using Stored = std::conditional_t<std::is_same_v<R, Logits>, double, typename Float<T>::Stored>;

    SamplePasses(const Batch<T>& batch, std::span<const double> count, std::span<T> out, std::span<std::int8_t> side)
        : batch_(batch), out_(out), side_(side), start_(count.size() + 1), order_(batch.size()), z_(batch.size()) {
        for (std::size_t c = 0; c < count.size(); ++c) start_[c + 1] = start_[c] + std::int32_t(count[c]);
        std::vector<std::int32_t> next(start_.begin(), start_.end() - 1);
        const std::size_t n = batch.size();
        for (std::size_t i = 0; i < n; ++i) {
            const std::int32_t at = next[batch.cell[i]]++;
            order_[at] = std::int32_t(i);
            z_[at] = Stored(R::prepare(double(batch.z[i])));
        }
        if (!batch.weight.empty()) weight_ = in_order(batch.weight);
        if (batch.own_bounds()) {
            lo_.resize(n);
            hi_.resize(n);
            for (std::size_t j = 0; j < n; ++j) {
                lo_[j] = batch.lo_of(order_[j]);
                hi_[j] = batch.hi_of(order_[j]);
            }
        }
    }

    void measure(Sums& sums) override {
        each_cell([&](int c, auto weight, auto lo, auto hi) {
            const double factor = R::factor(0.0);
            const auto total = add<3>(c, [&](int j) -> std::array<double, 3> {
                const auto [raw, slope] = R::respond(z_[j], factor);
                const double y = std::min(std::max(raw, lo(j)), hi(j));
                return {weight(j) * y, y == raw ? weight(j) * slope : 0.0, weight(j) * std::abs(y)};
            });
            sums.S[c] = total[0];
            sums.D[c] = total[1];
            sums.absolute[c] = total[2];
        });
    }

    void take(std::span<const double> shift, Sums& sums) override {
        check_interrupt(batch_.size());
        each_cell([&](int c, auto weight, auto lo, auto hi) {
            const double factor = R::factor(shift[c]);
            const auto total = add<2>(c, [&](int j) -> std::array<double, 2> {
                const auto [raw, slope] = R::respond(z_[j], factor);
                const double y = std::min(std::max(raw, lo(j)), hi(j));
                return {weight(j) * y, y == raw ? weight(j) * slope : 0.0};
            });
            sums.S[c] = total[0];
            sums.D[c] = total[1];
        });
    }

    void write(std::span<const double> shift, Sums& sums) override {
        each_cell([&](int c, auto weight, auto lo, auto hi) {
            const double factor = R::factor(shift[c]);
            const auto terms = [&](int j) -> std::array<double, 5> {
                const auto [raw, slope] = R::respond(z_[j], factor);
                const double near = rounded_response<T, R>(raw);
                const double y = std::min(std::max(near, lo(j)), hi(j));
                return {weight(j) * y, y == near ? weight(j) * slope : 0.0, weight(j) * std::abs(y), y, near - y};
            };
            // Pointers of its own: a store may change whatever it reads by way of others.
            const auto keep = [order = order_.data(), out = out_.data(), side = side_.data()](int j, double y,
                                                                                              double beyond) {
                out[order[j]] = Float<T>::nearest(y);
                side[order[j]] = std::int8_t(int(beyond > 0.0) - int(beyond < 0.0));
            };
            const auto total = add<5>(c, terms, keep);
            sums.S[c] = total[0];
            sums.D[c] = total[1];
            const double n = start_[c + 1] - start_[c];
            sums.error[c] = unit * (n + 8.0) * total[2] + n * tiny;
        });
    }

    void exact(Sums& sums) override { exact_sums(out_, batch_.cell, batch_.weight, sums.S, sums.error); }

  private:
    static constexpr int lanes_ = 4, block_ = 128;

    Numbers in_order(std::span<const double> values) const {
        Numbers found(values.size());
        for (std::size_t j = 0; j < found.size(); ++j) found[j] = values[order_[j]];
        return found;
    }

    // Call `work` for every cell with what weights and bounds are: constants to the compiler where they are.
    template <class Work>
    void each_cell(const Work& work) const {
        const int G = int(start_.size()) - 1;
        const auto one = [](int) { return 1.0; };
        const auto weight = [w = weight_.data()](int j) { return w[j]; };
        if (!lo_.empty()) {
            const auto lo = [side = lo_.data()](int j) { return side[j]; };
            const auto hi = [side = hi_.data()](int j) { return side[j]; };
            for (int c = 0; c < G; ++c) weight_.empty() ? work(c, one, lo, hi) : work(c, weight, lo, hi);
        } else {
            const auto lo = [side = batch_.lo[0]](int) { return side; };
            const auto hi = [side = batch_.hi[0]](int) { return side; };
            for (int c = 0; c < G; ++c) weight_.empty() ? work(c, one, lo, hi) : work(c, weight, lo, hi);
        }
    }

    // Sums of N terms over the samples of a cell, in several lanes. Terms of a block are computed before they are added
    // up: a loop that does both does not vectorise. `keep` is called with the last two terms of every sample.
    template <int N, class Terms, class Keep = std::nullptr_t>
    std::array<double, N> add(int c, const Terms& terms, const Keep& keep = {}) const {
        double term[N][block_], lane[N][lanes_] = {};
        for (std::int32_t first = start_[c]; first < start_[c + 1]; first += block_) {
            const int size = std::min(block_, start_[c + 1] - first);
            for (int b = 0; b < size; ++b) {
                const std::array<double, N> one = terms(first + b);
                for (int k = 0; k < N; ++k) term[k][b] = one[k];
            }
            for (int k = 0; k < N; ++k) {
                int b = 0;
                for (; b + lanes_ <= size; b += lanes_) {
                    for (int l = 0; l < lanes_; ++l) lane[k][l] += term[k][b + l];
                }
                for (; b < size; ++b) lane[k][0] += term[k][b];
            }
            if constexpr (!std::is_null_pointer_v<Keep>) {
                for (int b = 0; b < size; ++b) keep(first + b, term[N - 2][b], term[N - 1][b]);
            }
        }
        std::array<double, N> total;
        for (int k = 0; k < N; ++k) total[k] = (lane[k][0] + lane[k][1]) + (lane[k][2] + lane[k][3]);
        return total;
    }

    const Batch<T>& batch_;
    std::span<T> out_;
    std::span<std::int8_t> side_;
    std::vector<std::int32_t> start_, order_;
    std::vector<Stored> z_;
    Numbers weight_, lo_, hi_;
};

inline constexpr double most_sum = 1e300;  // of |z|: the rest of float64's range is left to differences and products

// The least and the greatest of outputs, and whether all are finite; several at a time, which vectorises.
struct Range {
    double least = infinity, greatest = -infinity;
    bool finite = true;

    // Whether sums of |z| stay far enough from the end of float64's range: the rest is left to differences and
    // products.
    bool fits(std::span<const double> weight) const {
        double total = 0.0;
        for (const double w : weight) total += w;
        return largest() * std::max(total, 1.0) <= most_sum;
    }
    double largest() const { return least <= greatest ? std::max(std::abs(least), std::abs(greatest)) : 0.0; }
};

template <class T>
Range range_of(std::span<const T> values) {
    using Number = typename Float<T>::Stored;
    constexpr std::size_t lanes = 8;
    Number least[lanes], greatest[lanes], nothing[lanes] = {};  // sums of zeros, unless something is not finite
    std::fill_n(least, lanes, std::numeric_limits<Number>::infinity());
    std::fill_n(greatest, lanes, -std::numeric_limits<Number>::infinity());
    const auto look = [&](std::size_t lane, Number value) {
        least[lane] = value < least[lane] ? value : least[lane];
        greatest[lane] = value > greatest[lane] ? value : greatest[lane];
        nothing[lane] += Number(0) * value;
    };
    std::size_t i = 0;
    for (; i + lanes <= values.size(); i += lanes) {
        for (std::size_t lane = 0; lane < lanes; ++lane) look(lane, Number(values[i + lane]));
    }
    for (; i < values.size(); ++i) look(0, Number(values[i]));
    Range found{*std::min_element(least, least + lanes), *std::max_element(greatest, greatest + lanes)};
    for (const Number sum : nothing) found.finite = found.finite && sum == Number(0);
    return found;
}

// What each cell's sum can be within the bounds, and how far shifts may go; false where z has a number that the
// discrepancy does not take.
template <class T, class R>
bool describe(const Batch<T>& batch, const Range& range, std::span<const double> cell_weight, CellFacts& facts) {
    const std::size_t n = batch.size(), G = cell_weight.size();
    const auto [least, greatest] = std::minmax({R::prepare(range.least), R::prepare(range.greatest)});
    double low = *std::min_element(batch.lo.begin(), batch.lo.end());
    double high = *std::max_element(batch.hi.begin(), batch.hi.end());
    double usual = 1.0;
    if constexpr (R::smooth) {
        if (!R::takes(least, greatest)) return false;
        facts.reach = R::reach(least, greatest);
        double slopes = 0.0;
        for (std::size_t i = 0; i < n; ++i) slopes += R::respond(R::prepare(double(batch.z[i])), R::factor(0.0)).slope;
        usual = slopes / double(std::max<std::size_t>(n, 1));
        low = std::max(low, 0.0);  // what a response cannot be, a bound need not forbid
        if constexpr (R::below_one) high = std::min(high, 1.0);
    } else {
        const double largest = std::max(std::abs(least), std::abs(greatest));
        facts.reach = 2.0 * std::max({largest - low, high + largest, 0.0});
    }
    facts.weight.resize(G);
    facts.least.assign(G, 0.0);
    facts.most.assign(G, 0.0);
    for (std::size_t c = 0; c < G; ++c) {
        facts.weight[c] = usual * cell_weight[c];
        if (cell_weight[c] > 0.0 && !batch.own_bounds()) {
            facts.least[c] = cell_weight[c] * low;
            facts.most[c] = cell_weight[c] * high;
        }
    }
    if (batch.own_bounds()) {
        for (std::size_t i = 0; i < n; ++i) {
            const double w = batch.weight_of(i);
            if (w == 0.0) continue;  // it adds nothing, even where its bound is infinite
            facts.least[batch.cell[i]] += w * std::max(batch.lo_of(i), low);
            facts.most[batch.cell[i]] += w * std::min(batch.hi_of(i), high);
        }
    }
    return true;
}

// With A the active rows, D the slopes and rho_z the sensitivities: out = rho_z (g - A'v), v = (A D A')^+ A D g. One
// pass for the cell sums of D g, one small solve, one pass to write.
template <class T, class R>
void pull_back(const Batch<T>& batch, const Rows& rows, const Solved& solved, std::span<const std::int8_t> side,
               std::span<const T> g, T* out) {
    constexpr double free[3] = {0.0, 1.0, 0.0};  // by side: nobody can predict which samples are at a bound
    const int G = rows.cells(), K = rows.statistics();
    Numbers factor(G), bank(4 * std::size_t(G), 0.0), sums(G), q(K);
    for (int c = 0; c < G; ++c) factor[c] = R::factor(solved.shift[c]);
    // Four banks in turn: samples of one cell need not wait for each other.
    for (std::size_t i = 0; i < g.size(); ++i) {
        const std::int32_t c = batch.cell[i];
        double slope = free[side[i] + 1];
        if constexpr (R::smooth) slope *= R::respond(R::prepare(double(batch.z[i])), factor[c]).slope;
        bank[(i & 3) * G + c] += slope * double(g[i]);
    }
    for (int c = 0; c < G; ++c) sums[c] = (bank[c] + bank[G + c]) + (bank[2 * G + c] + bank[3 * G + c]);
    rows.add_up(sums, q);
    Gram H(K);
    rows.gram(solved.slopes, H);
    rows.spread(solve_active(rows, solved.nu, H, q), sums);
    const auto write = [&](auto weight) {
        for (std::size_t i = 0; i < g.size(); ++i) {
            const std::int32_t c = batch.cell[i];
            double sensitivity = free[side[i] + 1];
            if constexpr (R::smooth) sensitivity *= R::sensitivity(R::prepare(double(batch.z[i])), factor[c]);
            out[i] = Float<T>::nearest(sensitivity * (double(g[i]) - weight(i) * sums[c]));
        }
    };
    if (batch.weight.empty()) {
        write([](std::size_t) { return 1.0; });
    } else {
        write([&](std::size_t i) { return batch.weight[i]; });
    }
}

}  // namespace fairlayer
