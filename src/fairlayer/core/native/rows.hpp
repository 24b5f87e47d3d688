// Rows: constraints as the core sees them, over the sums S of cells.
//
// Statistic k is q_k = sum_c M[c, k] S_c - offset_k, for instance a group's mean; M is kept without its zeros, cell by
// cell. Statistics are grouped into families:
//
//     each         lower <= q_k <= upper           for its one statistic,
//     difference   q_a - q_b <= upper              for every two of them,
//     ratio        ratio * q_a - q_b <= upper      for every two of them.
//
// No pair is ever listed: the worst row of a family is that of the greatest statistic against the least.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "arrays.hpp"

namespace fairlayer {

inline constexpr double unit = 0x1p-53;    // relative rounding error of float64
inline constexpr double tiny = 0x1p-1074;  // the least float64 above zero
inline constexpr double infinity = std::numeric_limits<double>::infinity();

using Numbers = std::vector<double>;

// The sum a + b and what its rounding lost, exactly (Knuth).
inline void two_sum(double a, double b, double& sum, double& lost) {
    sum = a + b;
    const double back = sum - a;
    lost = (a - (sum - back)) + (b - back);
}

enum class Kind { each, difference, ratio };

struct Family {
    int begin, end;  // its statistics
    Kind kind;
    double ratio, lower, upper;
};

// A single row, p * q[plus] - m * q[minus] <= bound. An equality's multiplier may have any sign.
struct Pair {
    int plus = 0, minus = 0;
    double p = 0.0, m = 0.0, bound = 0.0;
    bool equality = false;

    double value(std::span<const double> q) const { return p * q[plus] - m * q[minus]; }
    void add_to(std::span<double> nu, double amount) const {
        nu[plus] += amount * p;
        nu[minus] -= amount * m;
    }
};

class Rows {
  public:
    Rows(std::span<const std::int64_t> starts, std::span<const std::int64_t> of_entry, std::span<const double> values,
         std::span<const double> offsets, std::span<const bool> there, std::span<const std::int64_t> first,
         std::span<const double> family)
        : start(starts), statistic(of_entry), value(values), offset(offsets), present(there) {
        const std::size_t F = first.size() - 1;
        families.reserve(F);
        for (std::size_t f = 0; f < F; ++f) {
            families.push_back({int(first[f]), int(first[f + 1]), Kind(int(family[f])), family[F + f],
                                family[2 * F + f], family[3 * F + f]});
        }
    }

    int cells() const { return int(start.size()) - 1; }
    int statistics() const { return int(offset.size()); }

    // q = M'x.
    void add_up(std::span<const double> of_cell, std::span<double> q) const {
        std::fill(q.begin(), q.end(), 0.0);
        for (int c = 0; c < cells(); ++c) {
            for (auto e = start[c]; e < start[c + 1]; ++e) q[statistic[e]] += value[e] * of_cell[c];
        }
    }

    // q = M'S - offset.
    void measure(std::span<const double> sums, std::span<double> q) const {
        add_up(sums, q);
        for (int k = 0; k < statistics(); ++k) q[k] -= offset[k];
    }

    // Shifts of the cells, M nu.
    void spread(std::span<const double> nu, std::span<double> shift) const {
        for (int c = 0; c < cells(); ++c) {
            double total = 0.0;
            for (auto e = start[c]; e < start[c + 1]; ++e) total += value[e] * nu[statistic[e]];
            shift[c] = total;
        }
    }

    // |M|'x + |offset|: the size of the numbers that statistics are made of.
    void sizes(std::span<const double> of_cell, std::span<double> size) const {
        for (int k = 0; k < statistics(); ++k) size[k] = std::abs(offset[k]);
        for (int c = 0; c < cells(); ++c) {
            for (auto e = start[c]; e < start[c + 1]; ++e) size[statistic[e]] += std::abs(value[e]) * of_cell[c];
        }
    }

    // H = M' diag(slopes) M, row by row.
    void gram(std::span<const double> slopes, std::span<double> H) const {
        const int K = statistics();
        std::fill(H.begin(), H.end(), 0.0);
        for (int c = 0; c < cells(); ++c) {
            if (slopes[c] == 0.0) continue;
            for (auto a = start[c]; a < start[c + 1]; ++a) {
                const double weighted = value[a] * slopes[c];
                double* line = &H[statistic[a] * K];
                for (auto b = start[c]; b <= a; ++b) line[statistic[b]] += weighted * value[b];
            }
        }
        for (int k = 0; k < K; ++k) {  // the entries of a cell need not stand in the order of the statistics
            for (int i = 0; i < k; ++i) H[i * K + k] = H[k * K + i] = H[i * K + k] + H[k * K + i];
        }
    }

    std::span<const std::int64_t> start, statistic;
    std::span<const double> value, offset;
    std::span<const bool> present;
    std::vector<Family> families;
};

// The greatest and the least of a family's statistics, -1 where none is present; never the same if two are.
struct Extremes {
    int greatest = -1, least = -1;

    Extremes(const Family& family, std::span<const bool> present, std::span<const double> q) {
        for (int k = family.begin; k < family.end; ++k) {
            if (!present[k]) continue;
            if (greatest < 0 || q[k] >= q[greatest]) greatest = k;
            if (least < 0 || q[k] < q[least]) least = k;
        }
    }
};

// The most violated row of a family, and by how much it is; minus infinity where the family has none.
inline double worst_row(const Family& family, std::span<const bool> present, std::span<const double> q, Pair& row) {
    if (family.kind == Kind::each) {
        const int k = family.begin;
        if (!present[k]) return -infinity;
        const bool equality = family.lower == family.upper;
        const double above = q[k] - family.upper, below = family.lower - q[k];
        row = above >= below ? Pair{k, 0, 1.0, 0.0, family.upper, equality}
                             : Pair{0, k, 0.0, 1.0, -family.lower, equality};
        return std::max(above, below);
    }
    const Extremes at(family, present, q);
    if (at.greatest == at.least) return -infinity;
    row = {at.greatest, at.least, family.ratio, 1.0, family.upper, family.ratio == 1.0 && family.upper == 0.0};
    return row.value(q) - family.upper;
}

// By how much the worst row of all exceeds its bound.
inline double largest_excess(const Rows& rows, std::span<const double> q) {
    double worst = -infinity;
    Pair row;
    for (const Family& family : rows.families) worst = std::max(worst, worst_row(family, rows.present, q, row));
    return worst;
}

// The rows that hold an output where it is: those with a multiplier, and every equality. Of a family in which `a`
// statistics are pushed down and `b` are pushed up, a + b - 1 rows say all.
std::vector<Pair> active_rows(const Rows& rows, std::span<const double> nu);

// Entry (i, j) of R H R', R the rows over K statistics.
inline double pair_gram(std::span<const double> H, int K, const Pair& i, const Pair& j) {
    const double* a = &H[i.plus * K];
    const double* b = &H[i.minus * K];
    return i.p * (j.p * a[j.plus] - j.m * a[j.minus]) - i.m * (j.p * b[j.plus] - j.m * b[j.minus]);
}

// Rows as Python has them: a named tuple of arrays, which must outlive what is made of it.
struct PythonRows {
    explicit PythonRows(const nb::tuple& given)
        : start(nb::cast<Int64s>(given[0])),
          statistic(nb::cast<Int64s>(given[1])),
          value(nb::cast<Doubles>(given[2])),
          offset(nb::cast<Doubles>(given[3])),
          present(nb::cast<Vector<bool>>(given[4])),
          first(nb::cast<Int64s>(given[5])),
          family(nb::cast<DoubleMatrix>(given[6])) {}

    Rows view() const {
        return {entries(start),   entries(statistic), entries(value), entries(offset),
                entries(present), entries(first),     entries(family)};
    }

    Int64s start, statistic;
    Doubles value, offset;
    Vector<bool> present;
    Int64s first;
    DoubleMatrix family;
};

}  // namespace fairlayer
