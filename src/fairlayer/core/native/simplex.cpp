// Class probabilities: outputs (n, d) whose rows lie on the simplex, projected so that every class is fair.
//
// A sample in cell c counts as d, in the cells c d to c d + d - 1: whatever is said of rows, sums and certificates is
// said of every class. What differs is the response, of all classes of a sample together, and its slope, a block of
// d x d for every cell:
//
//     relative entropy    y_j = z_j exp(-s_j) / sum_l z_l exp(-s_l)         slope  diag(y) - y y'
//     squared             y = the point of the simplex nearest to z - s     slope  diag(1_A) - 1_A 1_A' / |A|
//
// with A the support of y.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/unique_ptr.h>

#include <array>
#include <numeric>

#include "exact_sums.hpp"
#include "projection.hpp"

namespace fairlayer {

namespace {

template <class T>
struct Points {
    std::span<const T> z;  // (n d,)
    std::span<const std::int32_t> cell;
    std::span<const double> weight;  // (n,), or empty where all are 1
    int d;

    std::size_t size() const { return cell.size(); }
    double weight_of(std::size_t i) const { return weight.empty() ? 1.0 : weight[i]; }
};

constexpr int block_size = 32;

// Some samples at a time, class by class, so that loops over samples vectorise; [j][b] is class j of sample b.
using Lanes = std::array<double, block_size>;

struct Block {
    explicit Block(int classes) : d(classes), z(d), factor(d), x(d) {}

    int d;
    std::vector<Lanes> z, factor;
    std::vector<Lanes> x;    // to be multiplied by the slopes
    std::span<Lanes> y;      // responses,
    const double* per = {};  // and of the squared discrepancy 1 over the size of the support
};

// Relative entropy. A cell's factors are exp(-s), up to one that is common to its classes.
struct EntropyOnSimplex {
    static constexpr double reach = 30.0, least_response = 1.0;
    static void prepare(std::span<const double> shift, std::span<double> factor) {
        const double least = *std::min_element(shift.begin(), shift.end());
        for (std::size_t j = 0; j < shift.size(); ++j) factor[j] = std::exp(-std::min(shift[j] - least, 600.0));
    }
    static void respond(Block& block, Lanes&) {
        Lanes total{};
        for (int j = 0; j < block.d; ++j) {
            for (int b = 0; b < block_size; ++b) total[b] += block.y[j][b] = block.z[j][b] * block.factor[j][b];
        }
        for (Lanes& y : block.y) {
            for (int b = 0; b < block_size; ++b) y[b] /= total[b];
        }
    }
    static double own(double y) { return y; }
    static double cross(double y, double other, double) { return y * other; }
    static double to_input(double x, double z) { return x / z; }  // the sensitivity to z is the slope over z
};

struct SquaredOnSimplex {
    static constexpr double reach = 4.0, least_response = 0.0;
    static void prepare(std::span<const double> shift, std::span<double> factor) {
        std::copy(shift.begin(), shift.end(), factor.begin());
    }
    static void respond(Block& block, Lanes& per) {
        Lanes top, above{}, theta, left;
        top.fill(-infinity);
        for (int j = 0; j < block.d; ++j) {
            for (int b = 0; b < block_size; ++b) {
                block.y[j][b] = block.z[j][b] - block.factor[j][b];
                top[b] = std::max(top[b], block.y[j][b]);
            }
        }
        for (Lanes& y : block.y) {  // from the largest on, so that far out nothing is lost to rounding
            for (int b = 0; b < block_size; ++b) above[b] += y[b] -= top[b];
        }
        for (int b = 0; b < block_size; ++b) theta[b] = (above[b] - 1.0) / block.d;
        for (double size = block.d * block_size;;) {  // leave out what the threshold makes negative, until nothing is
            above.fill(0.0);
            left.fill(0.0);
            for (const Lanes& y : block.y) {
                for (int b = 0; b < block_size; ++b) {
                    above[b] += y[b] > theta[b] ? y[b] : 0.0;
                    left[b] += y[b] > theta[b] ? 1.0 : 0.0;
                }
            }
            for (int b = 0; b < block_size; ++b) theta[b] = (above[b] - 1.0) / left[b];
            const double remaining = std::accumulate(left.begin(), left.end(), 0.0);
            if (!(remaining < size)) break;
            size = remaining;
        }
        for (int b = 0; b < block_size; ++b) per[b] = 1.0 / left[b];
        for (Lanes& y : block.y) {
            for (int b = 0; b < block_size; ++b) y[b] = std::max(y[b] - theta[b], 0.0);
        }
    }
    static double own(double y) { return y > 0.0 ? 1.0 : 0.0; }
    static double cross(double y, double other, double per) { return y > 0.0 && other > 0.0 ? per : 0.0; }
    static double to_input(double x, double) { return x; }
};

// x <- (diag(own) - cross) x
template <class R>
void times_slope(Block& block) {
    Lanes mean{};
    for (int j = 0; j < block.d; ++j) {
        for (int b = 0; b < block_size; ++b) mean[b] += R::own(block.y[j][b]) * block.x[j][b];
    }
    if constexpr (std::is_same_v<R, SquaredOnSimplex>) {
        for (int b = 0; b < block_size; ++b) mean[b] *= block.per[b];
    }
    for (int j = 0; j < block.d; ++j) {
        for (int b = 0; b < block_size; ++b) block.x[j][b] = R::own(block.y[j][b]) * (block.x[j][b] - mean[b]);
    }
}

template <class T, class R>
class SimplexPasses final : public Passes {
  public:
    SimplexPasses(const Points<T>& points, int cells, std::span<T> out)
        : points_(points),
          out_(out),
          factor_(std::size_t(cells) * points.d),
          block_(points.d),
          kept_((points.size() + block_size - 1) / block_size * (points.d + 1)) {}

    void measure(Sums& sums) override {
        take(Numbers(factor_.size(), 0.0), sums);
        sums.absolute = sums.S;
    }

    void take(std::span<const double> shift, Sums& sums) override {
        check_interrupt(points_.z.size());
        begin(shift, sums);
        each(true, [&](std::size_t, int b, std::size_t first, double w) {
            for (int j = 0; j < points_.d; ++j) {
                sums.S[first + j] += w * block_.y[j][b];
                sums.D[first + j] += w * block_.x[j][b];
            }
        });
    }

    void write(std::span<const double> shift, Sums& sums) override {
        begin(shift, sums);
        Numbers lost(sums.S.size(), 0.0), count(sums.S.size(), 0.0);
        each(true, [&](std::size_t i, int b, std::size_t first, double w) {
            for (int j = 0; j < points_.d; ++j) {
                const double near = std::max(block_.y[j][b], R::least_response * Float<T>::least);
                const T y = Float<T>::nearest(near);
                out_[i * points_.d + j] = y;
                double rest;
                two_sum(sums.S[first + j], w * double(y), sums.S[first + j], rest);
                lost[first + j] += rest;
                sums.D[first + j] += w * block_.x[j][b];
                count[first + j] += 1.0;
            }
        });
        const bool weighted = !points_.weight.empty();
        for (std::size_t c = 0; c < sums.S.size(); ++c) {
            sums.S[c] += lost[c];  // of positive numbers: their sum is also that of their absolute values
            const double n = count[c] * unit;
            sums.error[c] = ((weighted ? 4.0 : 2.0) * unit + 4.0 * n * n) * std::abs(sums.S[c]) + count[c] * tiny;
        }
    }

    void exact(Sums& sums) override {
        const int d = points_.d;
        std::vector<std::int32_t> cell(out_.size());
        Numbers weight(points_.weight.empty() ? 0 : out_.size());
        for (std::size_t v = 0; v < cell.size(); ++v) {
            cell[v] = points_.cell[v / d] * d + std::int32_t(v % d);
            if (!weight.empty()) weight[v] = points_.weight[v / d];
        }
        exact_sums(out_, cell, weight, sums.S, sums.error);
    }

    // M' B M, B the blocks of slopes of the pass before, their diagonals at least `floor`.
    void gram(const Rows& rows, const Sums&, std::span<const double> floor, Gram& H) override {
        const int d = points_.d, G = int(factor_.size()) / d;
        slopes_.assign(std::size_t(G) * d * d, 0.0);
        each(false, [&](std::size_t, int b, std::size_t first, double w) {
            for (int j = 0; j < d; ++j) {
                const double y = block_.y[j][b];
                double* line = &slopes_[(first + j) * d];
                for (int l = 0; l < j; ++l) line[l] -= w * R::cross(y, block_.y[l][b], block_.per[b]);
                line[j] += w * block_.x[j][b];
            }
        });
        H.clear();
        for (int c = 0; c < G * d; ++c) {
            slopes_[std::size_t(c) * d + c % d] = std::max(slopes_[std::size_t(c) * d + c % d], floor[c]);
            for (int l = 0; l < d; ++l) {
                const int other = c - c % d + l;
                const double both = slopes_[std::size_t(std::max(c, other)) * d + std::min(c, other) % d];
                if (both == 0.0) continue;
                for (auto a = rows.start[c]; a < rows.start[c + 1]; ++a) {
                    const double weighted = rows.value[a] * both;
                    for (auto b = rows.start[other]; b < rows.start[other + 1]; ++b) {
                        if (rows.statistic[b] > rows.statistic[a]) continue;  // that comes with c and other exchanged
                        H.at(rows.statistic[a], rows.statistic[b]) += weighted * rows.value[b];
                    }
                }
            }
        }
        H.pack();
    }

    // Call work(sample, its place in the block, its first cell, its weight) for every sample, once its block holds the
    // responses to the shifts prepared last, or those of the pass before, and the slopes times what `fill` makes of x;
    // without it, their diagonals.
    template <class Work, class Fill = std::nullptr_t>
    void each(bool anew, const Work& work, const Fill& fill = {}) {
        const std::size_t d = points_.d;
        for (std::size_t begun = 0; begun < points_.size(); begun += block_size) {
            const int size = int(std::min<std::size_t>(block_size, points_.size() - begun));
            Lanes* kept = &kept_[begun / block_size * (d + 1)];
            block_.y = {kept, d};
            block_.per = kept[d].data();
            if (anew) {
                for (int b = 0; b < block_size; ++b) {
                    const std::size_t i = begun + std::min(b, size - 1), first = points_.cell[i] * d;
                    for (std::size_t j = 0; j < d; ++j) {
                        block_.z[j][b] = double(points_.z[i * d + j]);
                        block_.factor[j][b] = factor_[first + j];
                    }
                }
                R::respond(block_, kept[d]);
            }
            if constexpr (std::is_null_pointer_v<Fill>) {
                for (std::size_t j = 0; j < d; ++j) {
                    for (int b = 0; b < block_size; ++b) {
                        const double y = block_.y[j][b];
                        block_.x[j][b] = R::own(y) - R::cross(y, y, block_.per[b]);
                    }
                }
            } else {
                for (int b = 0; b < size; ++b) fill(begun + b, b, points_.cell[begun + b] * d);
                times_slope<R>(block_);
            }
            for (int b = 0; b < size; ++b) {
                work(begun + b, b, points_.cell[begun + b] * d, points_.weight_of(begun + b));
            }
        }
    }

    void prepare(std::span<const double> shift) {
        const std::size_t d = points_.d;
        for (std::size_t first = 0; first < shift.size(); first += d) {
            R::prepare(shift.subspan(first, d), std::span(factor_).subspan(first, d));
        }
    }

    Block& block() { return block_; }

  private:
    void begin(std::span<const double> shift, Sums& sums) {
        prepare(shift);
        std::fill(sums.S.begin(), sums.S.end(), 0.0);
        std::fill(sums.D.begin(), sums.D.end(), 0.0);
    }

    const Points<T>& points_;
    std::span<T> out_;
    Numbers factor_, slopes_;
    Block block_;
    std::vector<Lanes> kept_;  // the responses of all blocks, each followed by its `per`
};

template <class T, class R>
class SimplexProjection final : public Projection {
  public:
    SimplexProjection(const AnyArray& z, const Int32s& cell, const Doubles& weights, const Doubles& count,
                      const Doubles& cell_weight, const nb::tuple& rows, const std::optional<Doubles>& start,
                      bool exact)
        : z_(z), cell_(cell), weights_(weights), rows_(rows) {
        const Points<T> points = view();
        const int d = points.d, cells = int(count.size()) * d;
        T* out;
        value = new_array<T>(z.size(), out);
        Numbers of_class(cells);
        CellFacts facts;
        facts.weight.resize(cells);
        facts.least.assign(cells, 0.0);
        facts.most.resize(cells);
        facts.reach = R::reach;
        for (int c = 0; c < cells; ++c) {
            of_class[c] = count.data()[c / d];
            facts.most[c] = cell_weight.data()[c / d];
            facts.weight[c] = facts.most[c] / d;
        }
        facts.count = of_class;
        Settings settings;
        settings.rounding = exact ? Float<T>::rounding : 0.0;
        if (start) settings.start = entries(*start);
        const Rows view_of_rows = rows_.view();
        const LongWork work(z.size());
        SimplexPasses<T, R> passes(points, int(count.size()), {out, z.size()});
        solved = solve(view_of_rows, facts, passes, settings);
        end = End(int(solved.outcome));
    }

    nb::object pull_back(const AnyArray& gradient) const override {
        const Points<T> points = view();
        const auto g = as_span<T>(gradient);
        const Rows rows = rows_.view();
        const int d = points.d, K = rows.statistics(), cells = rows.cells();
        T* out;
        nb::object found = new_array<T>(g.size(), out);
        const LongWork work(g.size());
        SimplexPasses<T, R> passes(points, cells / d, {});
        Numbers sums(cells, 0.0), none(cells, 0.0), q(K);
        Gram H(K);
        Block& block = passes.block();
        passes.prepare(solved.shift);
        const auto given = [&](std::size_t i, int b, std::size_t) {
            for (int j = 0; j < d; ++j) block.x[j][b] = double(g[i * d + j]);
        };
        const auto add = [&](std::size_t, int b, std::size_t first, double) {
            for (int j = 0; j < d; ++j) sums[first + j] += block.x[j][b];
        };
        passes.each(true, add, given);
        rows.add_up(sums, q);
        passes.gram(rows, Sums(0), none, H);
        rows.spread(solve_active(rows, solved.nu, H, q), sums);
        const auto corrected = [&](std::size_t i, int b, std::size_t first) {
            for (int j = 0; j < d; ++j) block.x[j][b] = double(g[i * d + j]) - points.weight_of(i) * sums[first + j];
        };
        const auto put = [&](std::size_t i, int b, std::size_t, double) {
            for (int j = 0; j < d; ++j) {
                out[i * d + j] = Float<T>::nearest(R::to_input(block.x[j][b], double(points.z[i * d + j])));
            }
        };
        passes.each(false, put, corrected);
        return found;
    }

  private:
    Points<T> view() const { return {as_span<T>(z_), entries(cell_), entries(weights_), int(z_.shape(1))}; }

    AnyArray z_;
    Int32s cell_;
    Doubles weights_;
    PythonRows rows_;
};

std::unique_ptr<Projection> project_simplex(int dtype, bool entropy, const AnyArray& z, const Int32s& cell,
                                            const Doubles& weights, const Doubles& count, const Doubles& cell_weight,
                                            const nb::tuple& rows, const std::optional<Doubles>& start, bool exact) {
    return with_dtype(Dtype(dtype), [&]<class T>() -> std::unique_ptr<Projection> {
        if (entropy) {
            return std::make_unique<SimplexProjection<T, EntropyOnSimplex>>(z, cell, weights, count, cell_weight, rows,
                                                                            start, exact);
        }
        return std::make_unique<SimplexProjection<T, SquaredOnSimplex>>(z, cell, weights, count, cell_weight, rows,
                                                                        start, exact);
    });
}

}  // namespace

void bind_simplex(nb::module_& m) {
    m.def("project_simplex", &project_simplex, nb::arg("dtype"), nb::arg("entropy"), array("z"), array("cell"),
          array("weights"), array("count"), array("cell_weight"), nb::arg("rows"), nb::arg("start").none(),
          nb::arg("exact"));
}

}  // namespace fairlayer
