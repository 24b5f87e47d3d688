// Numbers of yeses with fractions allowed: a linear programme with convex, piecewise linear costs, by the dual simplex
// method with long steps (bound flipping).
//
//     minimise  sum_u c_u(k_u)    subject to    lower_i <= sum_{u in i} w_u k_u + v_i r_f(i) <= upper_i,
//                                               low_u <= k_u <= high_u,  0 <= r_f <= most_f.
//
// A unit u is a set of samples that the rows treat alike; its slopes, what one more yes costs, ascend. r_f is the
// extreme rate of comparison f. For any prices of the rows, taking every unit to where its own cost less the price is
// least is dual feasible, so the method starts from the solution for any other bounds, as branching needs it.
//
// Nothing that is said of an answer rests on this code: prices, however found, give a bound below on every cost
// (`bound`), and infeasibility is checked by the row that shows it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>

#include "arrays.hpp"
#include "bindings.hpp"

namespace fairlayer {

namespace {

using Count = std::int64_t;
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double feasible = 1e-8;     // samples by which a row may be off
constexpr double least_pivot = 1e-9;  // smaller entries of the pivot row count as 0
constexpr double certain = 1e-9;      // relative, by which a row must exclude 0 to prove that nothing is feasible
constexpr int pivots_per_factor = 64;

enum class Outcome { optimal, infeasible, unfinished };

class DualSimplex {
  public:
    DualSimplex(std::span<const Count> start_, std::span<const double> slope_, std::span<const double> weight_,
                std::span<const Count> first_, std::span<const Count> row_, std::span<const Count> rate_,
                std::span<const double> value_, std::span<const double> most_)
        : start(start_.begin(), start_.end()),
          slope(slope_.begin(), slope_.end()),
          weight(weight_.begin(), weight_.end()),
          first(first_.begin(), first_.end()),
          row(row_.begin(), row_.end()),
          rate(rate_.begin(), rate_.end()),
          value(value_.begin(), value_.end()),
          most(most_.begin(), most_.end()),
          units(weight.size()),
          rates(most.size()),
          rows(rate.size()),
          price(rows, 0.0),
          inverse(rows * rows, 0.0),
          basis(rows),
          amount(rows, 0.0),
          place(units + rates + rows, nonbasic),
          position(units, 0),
          piece(units, 0),
          at_upper(rows, 0) {
        begin();
    }

    Outcome solve(std::span<const Count> low_, std::span<const Count> high_, std::span<const double> lower_,
                  std::span<const double> upper_) {
        low.assign(low_.begin(), low_.end());
        high.assign(high_.begin(), high_.end());
        lower.assign(lower_.begin(), lower_.end());
        upper.assign(upper_.begin(), upper_.end());
        bool fresh = false;
        restart();
        const int limit = 500 + 50 * static_cast<int>(rows);
        for (int step = 0; step < limit; ++step) {
            if (pivots >= pivots_per_factor) {
                factor();
                restart();
            }
            const std::size_t leaving = most_infeasible();
            if (leaving == rows) return Outcome::optimal;
            if (pivot(leaving)) continue;
            if (shows_infeasible()) return Outcome::infeasible;
            if (fresh) break;
            fresh = true;  // rounding may have added up: once more from the start
            begin();
            restart();
        }
        pivots = pivots_per_factor;  // begin anew next time
        return Outcome::unfinished;
    }

    // (U,) numbers of yeses, with fractions.
    std::vector<double> solution() const {
        std::vector<double> found(units);
        for (std::size_t u = 0; u < units; ++u) {
            const double x = place[u] == nonbasic ? static_cast<double>(position[u]) : amount[place[u]];
            found[u] = std::clamp(x, static_cast<double>(low[u]), static_cast<double>(high[u]));
        }
        return found;
    }

    // What any numbers of yeses within low and high cost at least, whatever the prices: every unit, rate and row does
    // what is best for itself.
    double bound(std::span<const double> cost) const {
        double total = 0.0;
        for (std::size_t u = 0; u < units; ++u) {
            const double pull = pull_of(u);
            const Count k = best_position(u, pull);
            total += cost[start[u] + static_cast<Count>(u) + k] - pull * static_cast<double>(k);
        }
        std::vector<double> of_rate(rates, 0.0);
        for (std::size_t i = 0; i < rows; ++i) {
            const double own = usable(i);
            if (own == 0.0) continue;
            total += own * (own > 0.0 ? lower[i] : upper[i]);
            of_rate[rate[i]] -= own * value[i];
        }
        for (std::size_t f = 0; f < rates; ++f) total += std::min(0.0, of_rate[f] * most[f]);
        return total;
    }

  private:
    static constexpr std::size_t nonbasic = std::numeric_limits<std::size_t>::max();

    std::vector<Count> start;    // (U + 1,)
    std::vector<double> slope;   // (n,) ascending within each unit
    std::vector<double> weight;  // (U,) of one sample
    std::vector<Count> first;    // (U + 1,) where the rows of each unit begin
    std::vector<Count> row;      // the rows that a unit counts in
    std::vector<Count> rate;     // (m,) the rate in each row
    std::vector<double> value;   // (m,) its coefficient
    std::vector<double> most;    // (F,)
    std::size_t units, rates, rows;

    std::vector<double> price;         // (m,)
    std::vector<double> inverse;       // (m, m) of the basis
    std::vector<std::size_t> basis;    // (m,) variables: units, then rates, then the rows' own values
    std::vector<double> amount;        // (m,) their values
    std::vector<std::size_t> place;    // of each variable in the basis
    std::vector<Count> position;       // (U,) of units that are not in the basis
    std::vector<Count> piece;          // (U,) of units that are: between piece and piece + 1
    std::vector<char> at_upper;        // (m,) of rows that are not
    std::vector<Count> low, high;      // (U,)
    std::vector<double> lower, upper;  // (m,)
    std::vector<double> pivot_row;     // (m,) the row of the inverse that the last pivot was taken in
    int pivots = 0;                    // since the inverse was made

    // The price of a row, 0 where it would be that of an end that the row does not have.
    double usable(std::size_t i) const { return std::isfinite(price[i] > 0.0 ? lower[i] : upper[i]) ? price[i] : 0.0; }

    // The value of one sample of a unit, or of one of a variable, at prices of the rows.
    double unit_at(std::size_t u, const std::vector<double>& of_row) const {
        double total = 0.0;
        for (Count e = first[u]; e < first[u + 1]; ++e) total += of_row[row[e]];
        return weight[u] * total;
    }

    double pull_of(std::size_t u) const {
        double total = 0.0;
        for (Count e = first[u]; e < first[u + 1]; ++e) total += usable(row[e]);
        return weight[u] * total;
    }

    Count best_position(std::size_t u, double pull) const {
        const auto begin = slope.begin() + start[u];
        return std::lower_bound(begin + low[u], begin + high[u], pull) - begin;
    }

    // out += times * column of a variable.
    void add_column(std::size_t variable, double times, std::vector<double>& out) const {
        if (variable < units) {
            for (Count e = first[variable]; e < first[variable + 1]; ++e) out[row[e]] += times * weight[variable];
        } else if (variable < units + rates) {
            for (std::size_t i = 0; i < rows; ++i)
                if (static_cast<std::size_t>(rate[i]) == variable - units) out[i] += times * value[i];
        } else {
            out[variable - units - rates] -= times;
        }
    }

    // amount -= inverse * change.
    void take_off(const std::vector<double>& change) {
        for (std::size_t i = 0; i < rows; ++i) {
            double total = 0.0;
            for (std::size_t j = 0; j < rows; ++j) total += inverse[i * rows + j] * change[j];
            amount[i] -= total;
        }
    }

    // Everything outside the basis to where the prices want it, and the basis to what follows.
    void restart() {
        std::vector<double> total(rows, 0.0);
        for (std::size_t u = 0; u < units; ++u) {
            if (place[u] != nonbasic) continue;
            position[u] = best_position(u, unit_at(u, price));
            if (position[u]) add_column(u, static_cast<double>(position[u]), total);
        }
        for (std::size_t i = 0; i < rows; ++i) {
            if (place[units + rates + i] != nonbasic) continue;
            at_upper[i] = !std::isfinite(lower[i]) || (price[i] < 0.0 && std::isfinite(upper[i]));
            total[i] -= at_upper[i] ? upper[i] : lower[i];
        }
        std::fill(amount.begin(), amount.end(), 0.0);
        take_off(total);
    }

    // The interval in which a variable of the basis may lie without another price.
    std::pair<double, double> interval(std::size_t variable) const {
        if (variable < units)
            return {static_cast<double>(std::clamp(piece[variable], low[variable], high[variable])),
                    static_cast<double>(std::clamp(piece[variable] + 1, low[variable], high[variable]))};
        if (variable < units + rates) return {-infinity, infinity};
        return {lower[variable - units - rates], upper[variable - units - rates]};
    }

    std::size_t most_infeasible() const {
        double worst = feasible;
        std::size_t found = rows;
        for (std::size_t i = 0; i < rows; ++i) {
            const auto [least, greatest] = interval(basis[i]);
            const double off = std::max(least - amount[i], amount[i] - greatest);
            if (off > worst) {
                worst = off;
                found = i;
            }
        }
        return found;
    }

    // A place where, as the prices move, a variable would rather be further on.
    struct Break {
        double step;
        std::size_t variable;
        Count next;                                 // the piece of a unit that it would move along
        double entry;                               // of the pivot row, signed by the direction
        bool operator<(const Break& other) const {  // the first, and of those the largest entry, has priority
            return step != other.step ? step > other.step : std::abs(entry) < std::abs(other.entry);
        }
    };

    // One step of the dual simplex method: false where no step mends the row, so that nothing is feasible.
    bool pivot(std::size_t leaving) {
        const std::size_t out = basis[leaving];
        const auto [least, greatest] = interval(out);
        const double sign = amount[leaving] > greatest ? 1.0 : -1.0;
        double left = sign > 0.0 ? amount[leaving] - greatest : least - amount[leaving];
        pivot_row.assign(inverse.begin() + leaving * rows, inverse.begin() + (leaving + 1) * rows);

        std::vector<Break> heap;
        const auto push_unit = [&](std::size_t u, Count at, double pull, double entry) {
            const Count next = entry > 0.0 ? at : at - 1;
            if (next < low[u] || next >= high[u]) return;
            heap.push_back({std::max((slope[start[u] + next] - pull) / entry, 0.0), u, next, entry});
        };
        for (std::size_t u = 0; u < units; ++u) {
            if (place[u] != nonbasic || low[u] == high[u]) continue;
            const double entry = sign * unit_at(u, pivot_row);
            if (std::abs(entry) > least_pivot) push_unit(u, position[u], unit_at(u, price), entry);
        }
        std::vector<double> of_rate(rates, 0.0);
        for (std::size_t i = 0; i < rows; ++i) of_rate[rate[i]] += pivot_row[i] * value[i];
        for (std::size_t f = 0; f < rates; ++f)
            if (place[units + f] == nonbasic && std::abs(of_rate[f]) > least_pivot)
                heap.push_back({0.0, units + f, 0, sign * of_rate[f]});
        for (std::size_t i = 0; i < rows; ++i) {
            const double entry = -sign * pivot_row[i];
            if (place[units + rates + i] != nonbasic || lower[i] == upper[i] || std::abs(entry) <= least_pivot)
                continue;
            if ((entry > 0.0) != static_cast<bool>(at_upper[i]))
                heap.push_back({std::max(price[i] / entry, 0.0), units + rates + i, 0, entry});
        }
        Count kept = 0;
        double own_pull = 0.0;
        if (out < units) {  // the unit that leaves may instead move on to its next piece
            kept = static_cast<Count>(sign > 0.0 ? greatest : least);
            own_pull = unit_at(out, price);
            push_unit(out, kept, own_pull, sign);
        }
        std::priority_queue<Break> breaks(std::less<Break>(), std::move(heap));

        std::vector<double> change(rows, 0.0);
        bool flipped = false;
        while (!breaks.empty()) {
            const Break here = breaks.top();
            breaks.pop();
            const std::size_t in = here.variable;
            const bool is_row = in >= units + rates;
            const double length = in < units ? 1.0
                                  : is_row   ? upper[in - units - rates] - lower[in - units - rates]
                                             : infinity;
            left -= std::abs(here.entry) * length;
            if (left <= 0.5 * feasible) {
                for (std::size_t i = 0; i < rows; ++i) price[i] += sign * here.step * pivot_row[i];
                if (flipped) take_off(change);
                if (in == out) {
                    piece[out] = here.next;
                } else {
                    exchange(leaving, in, here,
                             out < units  ? static_cast<double>(kept)
                             : sign > 0.0 ? greatest
                                          : least);
                    if (out < units) position[out] = kept;
                    if (out >= units + rates) at_upper[out - units - rates] = sign > 0.0;
                }
                return true;
            }
            const double direction = here.entry > 0.0 ? 1.0 : -1.0;
            if (is_row) {
                at_upper[in - units - rates] = direction > 0.0;
                add_column(in, direction * length, change);
                flipped = true;
            } else if (in == out) {
                kept += static_cast<Count>(direction);
                push_on(breaks, out, kept, own_pull, here.entry);
            } else {
                position[in] += static_cast<Count>(direction);
                add_column(in, direction, change);
                flipped = true;
                push_on(breaks, in, position[in], unit_at(in, price), here.entry);
            }
        }
        return false;
    }

    void push_on(std::priority_queue<Break>& breaks, std::size_t u, Count at, double pull, double entry) const {
        const Count next = entry > 0.0 ? at : at - 1;
        if (next >= low[u] && next < high[u])
            breaks.push({std::max((slope[start[u] + next] - pull) / entry, 0.0), u, next, entry});
    }

    // Put a variable into the basis in the place of another, which goes to `target`.
    void exchange(std::size_t leaving, std::size_t in, const Break& here, double target) {
        std::vector<double> column(rows, 0.0), spread(rows, 0.0);
        add_column(in, 1.0, column);
        for (std::size_t i = 0; i < rows; ++i)
            for (std::size_t j = 0; j < rows; ++j) spread[i] += inverse[i * rows + j] * column[j];
        double base = 0.0;  // a rate outside the basis is 0, and once inside it never leaves
        if (in < units) {
            base = static_cast<double>(position[in]);
            piece[in] = here.next;
        } else if (in >= units + rates) {
            base = at_upper[in - units - rates] ? upper[in - units - rates] : lower[in - units - rates];
        }
        const double move = (amount[leaving] - target) / spread[leaving];
        double* own = &inverse[leaving * rows];
        for (std::size_t j = 0; j < rows; ++j) own[j] /= spread[leaving];
        for (std::size_t i = 0; i < rows; ++i) {
            if (i == leaving || spread[i] == 0.0) continue;
            amount[i] -= move * spread[i];
            for (std::size_t j = 0; j < rows; ++j) inverse[i * rows + j] -= spread[i] * own[j];
        }
        place[basis[leaving]] = nonbasic;
        basis[leaving] = in;
        place[in] = leaving;
        amount[leaving] = base + move;
        ++pivots;
    }

    // The rows themselves as the first basis, at no price.
    void begin() {
        std::fill(price.begin(), price.end(), 0.0);
        std::fill(inverse.begin(), inverse.end(), 0.0);
        std::fill(place.begin(), place.end(), nonbasic);
        for (std::size_t i = 0; i < rows; ++i) {
            basis[i] = units + rates + i;
            place[basis[i]] = i;
            inverse[i * rows + i] = -1.0;
        }
        pivots = 0;
    }

    // The inverse and the prices anew, from the basis: Gauss and Jordan.
    void factor() {
        pivots = 0;
        std::vector<double> matrix(rows * rows, 0.0), column(rows);
        for (std::size_t j = 0; j < rows; ++j) {
            std::fill(column.begin(), column.end(), 0.0);
            add_column(basis[j], 1.0, column);
            for (std::size_t i = 0; i < rows; ++i) matrix[i * rows + j] = column[i];
        }
        std::fill(inverse.begin(), inverse.end(), 0.0);
        for (std::size_t i = 0; i < rows; ++i) inverse[i * rows + i] = 1.0;
        for (std::size_t j = 0; j < rows; ++j) {
            std::size_t best = j;
            for (std::size_t i = j + 1; i < rows; ++i)
                if (std::abs(matrix[i * rows + j]) > std::abs(matrix[best * rows + j])) best = i;
            if (std::abs(matrix[best * rows + j]) < 1e-12) return begin();
            for (auto* each : {&matrix, &inverse}) {
                auto& m = *each;
                if (best != j)
                    std::swap_ranges(m.begin() + best * rows, m.begin() + (best + 1) * rows, m.begin() + j * rows);
            }
            const double scale = 1.0 / matrix[j * rows + j];
            for (std::size_t k = 0; k < rows; ++k) {
                matrix[j * rows + k] *= scale;
                inverse[j * rows + k] *= scale;
            }
            for (std::size_t i = 0; i < rows; ++i) {
                const double times = matrix[i * rows + j];
                if (i == j || times == 0.0) continue;
                for (std::size_t k = 0; k < rows; ++k) {
                    matrix[i * rows + k] -= times * matrix[j * rows + k];
                    inverse[i * rows + k] -= times * inverse[j * rows + k];
                }
            }
        }
        std::fill(price.begin(), price.end(), 0.0);
        for (std::size_t i = 0; i < rows; ++i) {
            if (basis[i] >= units) continue;
            const double own = slope[start[basis[i]] + piece[basis[i]]];
            for (std::size_t j = 0; j < rows; ++j) price[j] += own * inverse[i * rows + j];
        }
    }

    // Whether the rows, added up by the last pivot row, cannot be kept by any numbers within their bounds.
    bool shows_infeasible() const {
        double least = 0.0, greatest = 0.0, size = 0.0;
        const auto add = [&](double entry, double from, double to) {
            if (std::abs(entry) <= 1e-12 && !(std::isfinite(from) && std::isfinite(to))) return;
            const double a = entry * from, b = entry * to;
            least += std::min(a, b);
            greatest += std::max(a, b);
            size += std::max(std::abs(a), std::abs(b));
        };
        for (std::size_t u = 0; u < units; ++u)
            add(unit_at(u, pivot_row), static_cast<double>(low[u]), static_cast<double>(high[u]));
        std::vector<double> of_rate(rates, 0.0);
        for (std::size_t i = 0; i < rows; ++i) of_rate[rate[i]] += pivot_row[i] * value[i];
        for (std::size_t f = 0; f < rates; ++f) add(of_rate[f], 0.0, most[f]);
        for (std::size_t i = 0; i < rows; ++i) add(-pivot_row[i], lower[i], upper[i]);
        if (!std::isfinite(size)) size = 1.0;
        return least > certain * size || greatest < -certain * size;
    }
};

}  // namespace

void bind_dual_simplex(nb::module_& m) {
    nb::class_<DualSimplex>(m, "DualSimplex", "Numbers of yeses with fractions allowed, solved anew for other bounds.")
        .def(
            "__init__",
            [](DualSimplex* self, Int64s start, Doubles slope, Doubles weight, Int64s first, Int64s row, Int64s rate,
               Doubles value, Doubles most) {
                new (self) DualSimplex(entries(start), entries(slope), entries(weight), entries(first), entries(row),
                                       entries(rate), entries(value), entries(most));
            },
            nb::arg("start").noconvert(), nb::arg("slope").noconvert(), nb::arg("weight").noconvert(),
            nb::arg("first").noconvert(), nb::arg("row").noconvert(), nb::arg("rate").noconvert(),
            nb::arg("value").noconvert(), nb::arg("most").noconvert())
        .def(
            "solve",
            [](DualSimplex& self, Int64s low, Int64s high, Doubles lower, Doubles upper, Doubles cost) {
                Outcome outcome;
                double least;
                std::vector<double> found;
                {
                    nb::gil_scoped_release unlocked;
                    outcome = self.solve(entries(low), entries(high), entries(lower), entries(upper));
                    least = outcome == Outcome::infeasible ? infinity : self.bound(entries(cost));
                    found = self.solution();
                }
                return nb::make_tuple(least, to_numpy(std::move(found)));
            },
            nb::arg("low").noconvert(), nb::arg("high").noconvert(), nb::arg("lower").noconvert(),
            nb::arg("upper").noconvert(), nb::arg("cost").noconvert(),
            "A bound below on the cost within these bounds, infinite where nothing is feasible; and numbers of yeses.");
}

}  // namespace fairlayer
