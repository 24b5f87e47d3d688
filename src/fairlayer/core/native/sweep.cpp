// One attribute, exactly: the cheapest numbers of yeses of disjoint groups whose rates differ little.
//
// Were the lowest rate r known, the groups would be independent: the best number of yeses of each is the present one,
// clipped to [r N, (r + tolerance) N]. For a ratio, with q the highest rate, the interval is [ratio q N, q N]. Some
// group has the extreme rate, so there are no more than n + G rates to try.
//
// Few of them need to be tried. With fractions of a sample allowed, the cost is convex in the rate, so that whatever
// beats the best answer so far lies in an interval around the minimum of that relaxation. Counts are compared as whole
// numbers, with a tolerance that is a fraction of whole numbers.
#include <algorithm>
#include <cmath>
#include <limits>

#include "arrays.hpp"
#include "bindings.hpp"

namespace fairlayer {

namespace {

using Count = std::int64_t;
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr int bisections = 200;
constexpr double rounding = 1e-12;  // relative, of a sum of costs

// a * b as two words. Not every compiler has whole numbers of 128 bits.
struct Product {
    std::uint64_t high, low;

    Product(std::uint64_t a, std::uint64_t b) {
        constexpr std::uint64_t word = 0xFFFFFFFF;
        const std::uint64_t first = (a >> 32) * (b & word), second = (a & word) * (b >> 32);
        const std::uint64_t bottom = (a & word) * (b & word);
        const std::uint64_t middle = (bottom >> 32) + (first & word) + (second & word);
        high = (a >> 32) * (b >> 32) + (first >> 32) + (second >> 32) + (middle >> 32);
        low = (bottom & word) | (middle << 32);
    }

    bool operator<=(const Product& other) const {
        return high < other.high || (high == other.high && low <= other.low);
    }
};

Count ceil_divide(Count a, Count b) { return a / b + (a % b > 0); }

// A share between 0 and 1 as a fraction of whole numbers.
struct Share {
    Count numerator, denominator;

    double value() const { return static_cast<double>(numerator) / static_cast<double>(denominator); }

    // floor(share * amount): from a float, corrected by exact comparisons.
    Count floor_of(Count amount) const {
        const Product exact(numerator, amount);
        Count guess = std::clamp<Count>(static_cast<Count>(value() * static_cast<double>(amount)), 0, amount);
        while (!(Product(guess, denominator) <= exact)) --guess;
        while (guess < amount && Product(guess + 1, denominator) <= exact) ++guess;
        return guess;
    }

    Count ceil_of(Count amount) const {
        const Count below = floor_of(amount);
        return below + !(Product(numerator, amount) <= Product(below, denominator));
    }
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

    // The cost of an extreme rate with fractions of a sample allowed; infinite where it is impossible.
    double relaxed(double rate) const {
        double spent = 0.0;
        for (std::size_t b = 0; b < groups(); ++b) {
            const double n = static_cast<double>(size(b)), slack = rounding * n;
            const double least = static_cast<double>(low[b]), most = static_cast<double>(high[b]);
            const double bottom = (ratio ? share.value() * rate : rate) * n;
            const double top = (ratio ? rate : rate + share.value()) * n;
            if (bottom > most + slack || top < least - slack) return infinity;
            // Wider by the slack, so that rounding never makes the relaxation dearer than it is.
            const double wanted = std::clamp(static_cast<double>(now[b]), bottom - slack, top + slack);
            const double place = std::clamp(wanted, least, most), floor = std::floor(place);
            const double* table = &cost[start[b] + static_cast<Count>(floor)];
            spent += place > floor ? table[0] + (place - floor) * (table[1] - table[0]) : table[0];
        }
        return spent * (1.0 - rounding);
    }
};

struct Answer {
    double cost = infinity;
    std::size_t group = 0;
    Count yeses = 0;
};

Answer sweep(const Problem& problem) {
    double first = 0.0, last = 1.0;  // rates that are possible
    for (std::size_t b = 0; b < problem.groups(); ++b) {
        const double n = static_cast<double>(problem.size(b)), share = problem.share.value();
        const double least = static_cast<double>(problem.low[b]) / n, most = static_cast<double>(problem.high[b]) / n;
        first = std::max(first, problem.ratio ? least : least - share);
        last = std::min(last, problem.ratio ? (share > 0.0 ? most / share : 1.0) : most);
    }
    if (first > last) std::swap(first, last);
    for (int i = 0; i < bisections && last - first > 0.0; ++i) {  // to the minimum of a convex function
        const double one = first + (last - first) / 3.0, two = last - (last - first) / 3.0;
        if (problem.relaxed(one) <= problem.relaxed(two)) {
            last = two;
        } else {
            first = one;
        }
    }
    const double middle = 0.5 * (first + last);
    Answer best;
    const auto attempt = [&](std::size_t a, Count j) {
        const double spent = problem.cost_of(a, j, best.cost);
        if (spent < best.cost) best = {spent, a, j};
    };
    const auto nearest = [&](std::size_t a) {
        return std::clamp(static_cast<Count>(middle * static_cast<double>(problem.size(a))), problem.low[a],
                          problem.high[a]);
    };
    for (std::size_t a = 0; a < problem.groups(); ++a) attempt(a, nearest(a));
    // Away from the minimum the relaxation only grows: once it exceeds the best answer, nothing better follows.
    for (std::size_t a = 0; a < problem.groups(); ++a) {
        const double n = static_cast<double>(problem.size(a));
        const Count begin = nearest(a);
        const auto beaten = [&](Count j) {
            return std::isfinite(best.cost) && problem.relaxed(static_cast<double>(j) / n) > best.cost;
        };
        for (Count j = begin; j <= problem.high[a] && (j <= begin + 1 || !beaten(j)); ++j) attempt(a, j);
        for (Count j = begin - 1; j >= problem.low[a] && (j >= begin - 1 || !beaten(j)); --j) attempt(a, j);
    }
    return best;
}

}  // namespace

void bind_sweep(nb::module_& m) {
    m.def(
        "sweep",
        [](Int64s start, Doubles cost, Int64s now, Int64s low, Int64s high, Count numerator, Count denominator,
           bool ratio) {
            const Problem problem{entries(start), entries(cost), entries(now),
                                  entries(low),   entries(high), Share{numerator, denominator},
                                  ratio};
            Answer best;
            std::vector<Count> count;
            {
                nb::gil_scoped_release unlocked;
                best = sweep(problem);
                if (std::isfinite(best.cost))
                    for (std::size_t b = 0; b < problem.groups(); ++b)
                        count.push_back(problem.best_count(best.group, best.yeses, b));
            }
            return to_numpy(std::move(count));
        },
        nb::arg("start").noconvert(), nb::arg("cost").noconvert(), nb::arg("now").noconvert(),
        nb::arg("low").noconvert(), nb::arg("high").noconvert(), nb::arg("numerator"), nb::arg("denominator"),
        nb::arg("ratio"),
        "The cheapest numbers of yeses of disjoint groups whose rates differ by at most a share, or keep a ratio; "
        "empty "
        "where none do.");
    m.def(
        "cost_tables",
        [](Int64s start, Doubles slope, Int64s now) {
            // The table of a unit has one entry more than the unit has samples.
            const auto begin = entries(start), present = entries(now);
            const auto step = entries(slope);
            std::vector<double> cost(step.size() + present.size());
            for (std::size_t u = 0; u < present.size(); ++u) {
                double* table = &cost[begin[u] + static_cast<Count>(u)];
                const double* own = step.data() + begin[u];
                const Count size = begin[u + 1] - begin[u];
                table[present[u]] = 0.0;
                for (Count k = present[u]; k < size; ++k) table[k + 1] = table[k] + own[k];
                for (Count k = present[u]; k-- > 0;) table[k] = table[k + 1] - own[k];
            }
            return to_numpy(std::move(cost));
        },
        nb::arg("start").noconvert(), nb::arg("slope").noconvert(), nb::arg("now").noconvert(),
        "Costs of 0, 1, 2, ... yeses of every unit, from what one more costs; 0 at the present number.");
}

}  // namespace fairlayer
