// One attribute, exactly: the cheapest numbers of yeses of disjoint groups whose rates differ little.
//
// Were the lowest rate r known, the groups would be independent: the best number of yeses of each is the present one,
// clipped to [r N, (r + tolerance) N]. For a ratio, with q the highest rate, the interval is [ratio q N, q N]. Some
// group has the extreme rate, so there are no more than n + G rates to try.
//
// Few of them need to be tried. Where the rate is only known to lie between two others, the intervals are wider and the
// cost is a bound below; where it exceeds the best answer so far, no rate between the two is tried. Counts are compared
// as whole numbers, with a tolerance that is a fraction of whole numbers.
#include <algorithm>
#include <bit>
#include <cmath>

#include "arrays.hpp"
#include "floats.hpp"

namespace fairlayer {

namespace {

using Count = std::int64_t;
constexpr double slack = 1e-12;  // of a group's size: rounding of a rate times the size

Count ceil_divide(Count a, Count b) { return a / b + (a % b > 0); }

// A share between 0 and 1 as a fraction of whole numbers.
struct Share {
    Count numerator, denominator;

    double value() const { return static_cast<double>(numerator) / static_cast<double>(denominator); }

    // By long division in base 2: not every compiler has whole numbers of 128 bits.
    Count floor_of(Count amount) const {
        Count whole = 0, rest = 0;
        for (int bit = std::bit_width(static_cast<std::uint64_t>(amount)); bit-- > 0;) {
            whole *= 2;
            rest = 2 * rest + (amount >> bit & 1) * numerator;
            for (; rest >= denominator; rest -= denominator) ++whole;
        }
        return whole;
    }
    Count ceil_of(Count amount) const { return amount - Share{denominator - numerator, denominator}.floor_of(amount); }
};

// Groups, the cost of every number of yeses in each, and how their rates are compared.
struct Problem {
    std::span<const Count> start;      // (G + 1,) where each group's table begins
    std::span<const double> cost;      // (n + G,) of 0, 1, 2, ... yeses
    std::span<const Count> now;        // (G,) yeses that cost nothing
    std::span<const Count> low, high;  // (G,) the fewest and the most yeses that are possible
    Share share;                       // the largest difference of rates, or the least ratio
    bool ratio;

    std::size_t groups() const { return now.size(); }
    Count size(std::size_t g) const { return start[g + 1] - start[g] - 1; }
    Count largest() const {
        Count most = 0;
        for (std::size_t g = 0; g < groups(); ++g) most = std::max(most, size(g));
        return most;
    }

    // The number of yeses of group b where group a, with j of them, has the extreme rate; -1 where there is none.
    Count best_count(std::size_t a, Count j, std::size_t b) const {
        const Count own = size(a), other = size(b), product = j * other;
        Count fewest, most;
        if (ratio) {
            fewest = ceil_divide(share.ceil_of(product), own);
            most = product / own;
        } else {
            fewest = ceil_divide(product, own);
            most = (product + share.floor_of(own * other)) / own;
        }
        fewest = std::max(fewest, low[b]);
        most = std::min(most, high[b]);
        return fewest <= most ? std::clamp(now[b], fewest, most) : -1;
    }

    // The cost of an answer in which group a, with j yeses, has the extreme rate; infinite where it exceeds `limit`.
    double cost_of(std::size_t a, Count j, double limit) const {
        double spent = 0.0;
        for (std::size_t b = 0; b < groups() && spent <= limit; ++b) {
            const Count count = best_count(a, j, b);
            if (count < 0) return infinity;
            spent += cost[start[b] + count];
        }
        return spent <= limit ? spent : infinity;
    }

    // What every answer costs at least whose extreme rate lies between two.
    double least_cost(double from, double to) const {
        const double wide = share.value();
        double spent = 0.0;
        for (std::size_t b = 0; b < groups(); ++b) {
            const double n = static_cast<double>(size(b));
            const auto fewest = static_cast<Count>(std::ceil(((ratio ? wide * from : from) - slack) * n));
            const auto most = static_cast<Count>(std::floor(((ratio ? to : to + wide) + slack) * n));
            if (fewest > high[b] || most < low[b]) return infinity;
            spent += cost[start[b] + std::clamp(now[b], std::max(fewest, low[b]), std::min(most, high[b]))];
        }
        return spent;
    }
};

struct Sweep {
    const Problem& problem;
    double cost = infinity;  // of the best answer, in which `group` has the extreme rate with so many yeses
    std::size_t group = 0;
    Count yeses = 0;

    // Try the extreme rates between two: those of one half after the other, or each that a group can have.
    void between(double from, double to) {
        if (problem.least_cost(from, to) >= cost) return;
        const double middle = 0.5 * (from + to);
        if ((to - from) * static_cast<double>(problem.largest()) > 1.0) {
            const bool lower_first = problem.least_cost(from, middle) <= problem.least_cost(middle, to);
            if (lower_first) between(from, middle);
            between(middle, to);
            if (!lower_first) between(from, middle);
            return;
        }
        for (std::size_t a = 0; a < problem.groups(); ++a) {
            const double n = static_cast<double>(problem.size(a));
            const Count most = std::min(static_cast<Count>((to + slack) * n), problem.high[a]);
            for (Count j = std::max(static_cast<Count>((from - slack) * n), problem.low[a]); j <= most; ++j) {
                const double spent = problem.cost_of(a, j, cost);
                if (spent < cost) {
                    cost = spent;
                    group = a;
                    yeses = j;
                }
            }
        }
    }
};

}  // namespace

void bind_sweep(nb::module_& m) {
    m.def(
        "sweep",
        [](Int64s start, Doubles cost, Int64s now, Int64s low, Int64s high, Count numerator, Count denominator,
           bool ratio) {
            const Share share{numerator, denominator};
            const Problem problem{entries(start), entries(cost), entries(now), entries(low),
                                  entries(high),  share,         ratio};
            Sweep best{problem};
            std::vector<Count> count;
            {
                nb::gil_scoped_release unlocked;
                best.between(0.0, 1.0);
            }
            for (std::size_t b = 0; b < problem.groups() && std::isfinite(best.cost); ++b)
                count.push_back(problem.best_count(best.group, best.yeses, b));
            return to_numpy(std::move(count));
        },
        array("start"), array("cost"), array("now"), array("low"), array("high"), nb::arg("numerator"),
        nb::arg("denominator"), nb::arg("ratio"),
        "The cheapest numbers of yeses of disjoint groups whose rates differ by at most a share, or keep a ratio; "
        "empty where none do.");
    m.def(
        "cost_tables",
        [](Int64s start, Doubles slope, Int64s now) {
            // The table of a unit has one entry more than the unit has samples.
            const auto begin = entries(start), present = entries(now);
            std::vector<double> cost(slope.size() + present.size());
            for (std::size_t u = 0; u < present.size(); ++u) {
                double* table = &cost[begin[u] + static_cast<Count>(u)];
                const double* own = slope.data() + begin[u];
                for (Count k = present[u]; k < begin[u + 1] - begin[u]; ++k) table[k + 1] = table[k] + own[k];
                for (Count k = present[u]; k-- > 0;) table[k] = table[k + 1] - own[k];
            }
            return to_numpy(std::move(cost));
        },
        array("start"), array("slope"), array("now"),
        "Costs of 0, 1, 2, ... yeses of every unit, from what one more costs; 0 at the present number.");
}

}  // namespace fairlayer
