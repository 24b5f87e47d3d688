// A linear programme with convex, piecewise linear costs, by the dual simplex method with long steps (bound flipping):
//
//     minimise  sum_j c_j(x_j)    subject to    lower <= A x <= upper,  low_j <= x_j <= high_j.
//
// The unknowns are numbers of yeses with fractions allowed, and the extreme rates that groups are compared with. The
// slopes of c_j ascend from whole number to whole number. For any prices of the rows, taking every unknown to where its
// own cost less the price is least is dual feasible, so the method starts from the solution for any other bounds, as
// branching needs it.
//
// Nothing that is said of an answer rests on this code: prices, however found, give a bound below on every cost
// (`bound`), and infeasibility is checked by the row that shows it.
#include <algorithm>
#include <cmath>
#include <limits>

#include "arrays.hpp"
#include "floats.hpp"

namespace fairlayer {

namespace {

using Count = std::int64_t;
constexpr double feasible = 1e-8;     // by which an unknown may be off
constexpr double least_pivot = 1e-9;  // smaller entries of the pivot row count as 0
constexpr double certain = 1e-9;      // relative, by which a row must exclude 0 to prove that nothing is feasible
constexpr int pivots_per_factor = 64;
constexpr std::size_t outside = std::numeric_limits<std::size_t>::max();

// One x_j, or the value of a row, which costs nothing and goes from its lower to its upper bound in one step.
struct Unknown {
    Count start;                  // where its slopes begin
    Count table;                  // where its costs begin
    Count low = 0, high = 1;      // the fewest and the most steps
    Count steps = 0;              // taken; inside the basis it lies between these and one more
    double origin = 0.0;          // its value without steps
    double length = 1.0;          // of a step
    std::size_t place = outside;  // in the basis

    double at(Count count) const { return origin + length * static_cast<double>(count); }
    double least() const { return at(std::clamp(steps, low, high)); }  // inside the basis, at the present prices
    double greatest() const { return at(std::clamp(steps + 1, low, high)); }
};

class DualSimplex {
  public:
    DualSimplex(std::span<const Count> start, std::span<const double> slopes, std::span<const double> costs,
                std::span<const Count> first_, std::span<const Count> row_, std::span<const double> value_,
                std::size_t rows_)
        : columns(start.size() - 1),
          rows(rows_),
          slope(slopes.begin(), slopes.end()),
          cost(costs.begin(), costs.end()),
          first(first_.begin(), first_.end()),
          row(row_.begin(), row_.end()),
          value(value_.begin(), value_.end()),
          basis(rows),
          amount(rows) {
        for (std::size_t j = 0; j < columns; ++j) unknowns.push_back({start[j], start[j] + static_cast<Count>(j)});
        for (std::size_t i = 0; i < rows; ++i) {
            unknowns.push_back({std::ssize(slope), std::ssize(cost)});
            row.push_back(static_cast<Count>(i));
            value.push_back(-1.0);
            first.push_back(std::ssize(row));
        }
        slope.push_back(0.0);
        cost.insert(cost.end(), {0.0, 0.0});
        begin();
    }

    // Whether anything may be feasible.
    bool solve(std::span<const Count> low, std::span<const Count> high, std::span<const double> lower,
               std::span<const double> upper) {
        for (std::size_t j = 0; j < columns; ++j) {
            unknowns[j].low = low[j];
            unknowns[j].high = high[j];
        }
        for (std::size_t i = 0; i < rows; ++i) {
            Unknown& own = unknowns[columns + i];
            own.high = lower[i] < upper[i];
            own.origin = lower[i];
            own.length = upper[i] - lower[i];
        }
        restart();
        bool fresh = false;
        const int limit = 500 + 50 * static_cast<int>(rows);
        for (int step = 0; step < limit; ++step) {
            if (pivots >= pivots_per_factor) {
                factor();
                restart();
            }
            const std::size_t leaving = most_infeasible();
            if (leaving == rows) return true;
            if (pivot(leaving)) continue;
            if (shows_infeasible()) return false;
            if (fresh) break;
            fresh = true;  // rounding may have added up: once more from the start
            begin();
            restart();
        }
        pivots = pivots_per_factor;  // not solved to the end: begin anew next time
        return true;
    }

    Numbers solution() const {
        Numbers found(columns);
        for (std::size_t j = 0; j < columns; ++j) {
            const Unknown& own = unknowns[j];
            const double x = own.place == outside ? own.at(own.steps) : amount[own.place];
            found[j] = std::clamp(x, own.at(own.low), own.at(own.high));
        }
        return found;
    }

    // What any x within its bounds costs at least, whatever the prices: every unknown does what is best for itself.
    double bound() const {
        double total = 0.0;
        for (std::size_t j = 0; j < unknowns.size(); ++j) {
            const double pull = times(j, price);
            const Count steps = best_steps(unknowns[j], pull);
            total += cost[unknowns[j].table + steps] - pull * unknowns[j].at(steps);
        }
        return total;
    }

  private:
    std::size_t columns, rows;
    Numbers slope, cost;             // of each step, and of each number of steps, unknown by unknown
    std::vector<Count> first, row;   // the entries of A by column; the last columns are the values of rows
    Numbers value;                   // of each entry
    std::vector<Unknown> unknowns;   // the columns, then the values of rows
    std::vector<std::size_t> basis;  // (m,) unknowns
    Numbers amount;                  // (m,) their values
    Numbers inverse;                 // (m, m) of their columns
    Numbers price;                   // (m,) of each row
    Numbers pivot_row;               // (m,) the row of the inverse that the last pivot was taken in
    int pivots = 0;                  // since the inverse was made

    // A column times a number for each row.
    double times(std::size_t j, const Numbers& of_row) const {
        double total = 0.0;
        for (Count e = first[j]; e < first[j + 1]; ++e) total += value[e] * of_row[row[e]];
        return total;
    }

    void add_column(std::size_t j, double amount_of_it, Numbers& sum) const {
        for (Count e = first[j]; e < first[j + 1]; ++e) sum[row[e]] += amount_of_it * value[e];
    }

    Numbers times_inverse(const Numbers& vector) const {
        Numbers product(rows, 0.0);
        for (std::size_t i = 0; i < rows; ++i)
            for (std::size_t j = 0; j < rows; ++j) product[i] += inverse[i * rows + j] * vector[j];
        return product;
    }

    Count best_steps(const Unknown& own, double pull) const {
        const auto begin = slope.begin() + own.start;
        return std::lower_bound(begin + own.low, begin + own.high, pull) - begin;
    }

    // The values of rows as the basis, at no price.
    void begin() {
        pivots = 0;
        price.assign(rows, 0.0);
        inverse.assign(rows * rows, 0.0);
        for (Unknown& unknown : unknowns) unknown.place = outside;
        for (std::size_t i = 0; i < rows; ++i) {
            inverse[i * rows + i] = -1.0;
            basis[i] = columns + i;
            unknowns[basis[i]].place = i;
            unknowns[basis[i]].steps = 0;
        }
    }

    // Everything outside the basis to where the prices want it, and the basis to what follows.
    void restart() {
        Numbers total(rows, 0.0);
        for (std::size_t j = 0; j < unknowns.size(); ++j) {
            Unknown& own = unknowns[j];
            if (own.place != outside) continue;
            own.steps = best_steps(own, times(j, price));
            const double x = own.at(own.steps);
            if (x != 0.0) add_column(j, -x, total);
        }
        amount = times_inverse(total);
    }

    // The inverse and the prices anew, from the basis: its columns enter one by one (Gauss and Jordan).
    void factor() {
        const std::vector<std::size_t> wanted = basis;
        begin();
        std::vector<char> leaves(rows, 1);
        for (const std::size_t j : wanted)
            if (j >= columns) leaves[j - columns] = 0;
        for (const std::size_t j : wanted) {
            if (j >= columns) continue;
            const Numbers spread = spread_of(j);
            std::size_t best = rows;
            for (std::size_t i = 0; i < rows; ++i)
                if (leaves[i] && (best == rows || std::abs(spread[i]) > std::abs(spread[best]))) best = i;
            if (std::abs(spread[best]) < 1e-12) return begin();
            leaves[best] = 0;
            exchange(best, j, spread);
        }
        pivots = 0;
        for (std::size_t i = 0; i < rows; ++i) {
            const Unknown& own = unknowns[basis[i]];
            for (std::size_t j = 0; j < rows; ++j) price[j] += slope[own.start + own.steps] * inverse[i * rows + j];
        }
    }

    // A column in terms of the basis.
    Numbers spread_of(std::size_t j) const {
        Numbers column(rows, 0.0);
        add_column(j, 1.0, column);
        return times_inverse(column);
    }

    // Put an unknown into the basis in the place of another.
    void exchange(std::size_t leaving, std::size_t in, const Numbers& spread) {
        double* own = &inverse[leaving * rows];
        for (std::size_t j = 0; j < rows; ++j) own[j] /= spread[leaving];
        for (std::size_t i = 0; i < rows; ++i) {
            if (i == leaving || spread[i] == 0.0) continue;
            for (std::size_t j = 0; j < rows; ++j) inverse[i * rows + j] -= spread[i] * own[j];
        }
        unknowns[basis[leaving]].place = outside;
        basis[leaving] = in;
        unknowns[in].place = leaving;
        ++pivots;
    }

    // The place in the basis that is furthest from where it may be without other prices.
    std::size_t most_infeasible() const {
        double worst = feasible;
        std::size_t found = rows;
        for (std::size_t i = 0; i < rows; ++i) {
            const Unknown& own = unknowns[basis[i]];
            const double off = std::max(own.least() - amount[i], amount[i] - own.greatest());
            if (off > worst) {
                worst = off;
                found = i;
            }
        }
        return found;
    }

    // A place where, as the prices move, an unknown would rather be one step further.
    struct Break {
        double when;
        std::size_t unknown;
        Count piece;                                // that it would move along
        double entry;                               // of the pivot row, signed by the direction
        bool operator<(const Break& other) const {  // the first, and of those the largest entry, has priority
            return when != other.when ? when > other.when : std::abs(entry) < std::abs(other.entry);
        }
    };

    // One step of the dual simplex method: false where no step makes the row hold, so that nothing is feasible.
    bool pivot(std::size_t leaving) {
        const std::size_t out = basis[leaving];
        Unknown& left_behind = unknowns[out];
        const bool above = amount[leaving] > left_behind.greatest();
        const double sign = above ? 1.0 : -1.0;
        double left = above ? amount[leaving] - left_behind.greatest() : left_behind.least() - amount[leaving];
        pivot_row.assign(inverse.begin() + leaving * rows, inverse.begin() + (leaving + 1) * rows);
        // It leaves at the end that it is beyond, unless it is moved on to its next piece.
        const Count before = left_behind.steps;
        left_behind.steps = std::clamp(before + above, left_behind.low, left_behind.high);

        std::vector<Break> breaks;  // a heap
        const auto add_break = [&](std::size_t j, double entry) {
            const Unknown& own = unknowns[j];
            const Count piece = entry > 0.0 ? own.steps : own.steps - 1;
            if (piece < own.low || piece >= own.high) return false;
            breaks.push_back({std::max((slope[own.start + piece] - times(j, price)) / entry, 0.0), j, piece, entry});
            return true;
        };
        for (std::size_t j = 0; j < unknowns.size(); ++j) {
            if ((unknowns[j].place != outside && j != out) || unknowns[j].low == unknowns[j].high) continue;
            const double entry = sign * times(j, pivot_row);
            if (std::abs(entry) > least_pivot) add_break(j, entry);
        }
        std::make_heap(breaks.begin(), breaks.end());
        Numbers change(rows, 0.0);
        while (!breaks.empty()) {
            std::pop_heap(breaks.begin(), breaks.end());
            const Break here = breaks.back();
            breaks.pop_back();
            Unknown& in = unknowns[here.unknown];
            left -= std::abs(here.entry) * in.length;
            if (left <= 0.5 * feasible) {
                for (std::size_t i = 0; i < rows; ++i) price[i] += sign * here.when * pivot_row[i];
                const Numbers moved = times_inverse(change);
                for (std::size_t i = 0; i < rows; ++i) amount[i] -= moved[i];
                if (here.unknown == out) {
                    in.steps = here.piece;
                    return true;
                }
                const Numbers spread = spread_of(here.unknown);
                const double move = (amount[leaving] - left_behind.at(left_behind.steps)) / spread[leaving];
                for (std::size_t i = 0; i < rows; ++i) amount[i] -= move * spread[i];
                amount[leaving] = in.at(in.steps) + move;
                in.steps = here.piece;
                exchange(leaving, here.unknown, spread);
                return true;
            }
            const Count step = here.entry > 0.0 ? 1 : -1;
            in.steps += step;
            if (here.unknown != out) add_column(here.unknown, in.length * static_cast<double>(step), change);
            if (add_break(here.unknown, here.entry)) std::push_heap(breaks.begin(), breaks.end());
        }
        left_behind.steps = before;
        return false;
    }

    // Whether the rows, added up by the last pivot row, cannot be kept by any numbers within their bounds.
    bool shows_infeasible() const {
        double least = 0.0, greatest = 0.0, size = 0.0;
        for (std::size_t j = 0; j < unknowns.size(); ++j) {
            const double entry = times(j, pivot_row);
            const double a = entry * unknowns[j].at(unknowns[j].low), b = entry * unknowns[j].at(unknowns[j].high);
            least += std::min(a, b);
            greatest += std::max(a, b);
            size += std::max(std::abs(a), std::abs(b));
        }
        return least > certain * size || greatest < -certain * size;
    }
};

}  // namespace

void bind_dual_simplex(nb::module_& m) {
    nb::class_<DualSimplex>(m, "DualSimplex", "Numbers of yeses with fractions allowed, solved anew for other bounds.")
        .def(
            "__init__",
            [](DualSimplex* self, Int64s start, Doubles slope, Doubles cost, Int64s first, Int64s row, Doubles value,
               std::size_t rows) {
                new (self) DualSimplex(entries(start), entries(slope), entries(cost), entries(first), entries(row),
                                       entries(value), rows);
            },
            array("start"), array("slope"), array("cost"), array("first"), array("row"), array("value"),
            nb::arg("rows"))
        .def(
            "solve",
            [](DualSimplex& self, Int64s low, Int64s high, Doubles lower, Doubles upper) {
                bool possible;
                {
                    nb::gil_scoped_release unlocked;
                    possible = self.solve(entries(low), entries(high), entries(lower), entries(upper));
                }
                const double least = possible ? self.bound() : std::numeric_limits<double>::infinity();
                return nb::make_tuple(least, to_numpy(self.solution()));
            },
            array("low"), array("high"), array("lower"), array("upper"),
            "A bound below on the cost within these bounds, infinite where nothing is feasible; and the unknowns.");
}

}  // namespace fairlayer
