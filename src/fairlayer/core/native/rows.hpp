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
#include <span>

#include "arrays.hpp"
#include "floats.hpp"

namespace fairlayer {

enum class Kind { each, difference, ratio };

struct Family {
    int begin, end;  // its statistics
    Kind kind;
    double ratio, lower, upper;

    bool is_equality() const { return kind == Kind::each ? lower == upper : ratio == 1.0 && upper == 0.0; }
};

// A symmetric matrix over the statistics: added up as a lower triangle, then read without its zeros.
class Gram {
  public:
    explicit Gram(int K) : K_(K), entry_(std::size_t(K) * K), start_(K + 1) {}

    int size() const { return K_; }
    double operator()(int i, int j) const { return entry_[std::size_t(std::max(i, j)) * K_ + std::min(i, j)]; }

    void clear() {
        for (int i = 0; i < K_; ++i) std::fill_n(&entry_[std::size_t(i) * K_], i + 1, 0.0);
    }
    double& at(std::int64_t i, std::int64_t j) { return entry_[std::max(i, j) * K_ + std::min(i, j)]; }

    // To be called when all has been added up.
    void pack() {
        std::fill(start_.begin(), start_.end(), 0);
        found_.clear();
        for (int i = 0; i < K_; ++i) {
            const double* line = &entry_[std::size_t(i) * K_];
            for (int j = 0; j <= i; ++j) {
                if (line[j] == 0.0) continue;
                found_.push_back({i, j, line[j]});
                ++start_[i + 1];
                if (i != j) ++start_[j + 1];
            }
        }
        for (int k = 0; k < K_; ++k) start_[k + 1] += start_[k];
        std::vector<std::size_t> next(start_.begin(), start_.end() - 1);
        column_.resize(start_[K_]);
        value_.resize(start_[K_]);
        for (const auto& [i, j, value] : found_) {
            column_[next[i]] = j;
            value_[next[i]++] = value;
            if (i == j) continue;
            column_[next[j]] = i;
            value_[next[j]++] = value;
        }
    }

    // Call work(j, H_ij) for all entries of a row that are not zero.
    template <class Work>
    void each(int i, const Work& work) const {
        for (std::size_t e = start_[i]; e < start_[i + 1]; ++e) work(column_[e], value_[e]);
    }

    // q -= H nu; size: += |H| |nu|, unless it is empty.
    void subtract(std::span<const double> nu, std::span<double> q, std::span<double> size = {}) const {
        for (int i = 0; i < K_; ++i) {
            if (nu[i] == 0.0) continue;
            each(i, [&](int j, double value) {
                const double part = value * nu[i];
                q[j] -= part;
                if (!size.empty()) size[j] += std::abs(part);
            });
        }
    }

  private:
    struct Entry {
        int i, j;
        double value;
    };
    int K_;
    Numbers entry_;
    std::vector<std::size_t> start_;
    std::vector<Entry> found_;
    std::vector<int> column_;
    Numbers value_;
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

    // M' diag(slopes) M
    void gram(std::span<const double> slopes, Gram& H) const {
        H.clear();
        for (int c = 0; c < cells(); ++c) {
            if (slopes[c] == 0.0) continue;
            for (auto a = start[c]; a < start[c + 1]; ++a) {
                const double weighted = value[a] * slopes[c];
                for (auto b = start[c]; b <= a; ++b) H.at(statistic[a], statistic[b]) += weighted * value[b];
            }
        }
        H.pack();
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

// By how much the worst row of all exceeds its bound.
inline double largest_excess(const Rows& rows, std::span<const double> q) {
    double worst = -infinity;
    for (const Family& family : rows.families) {
        const Extremes at(family, rows.present, q);
        if (family.kind == Kind::each && at.greatest >= 0) {
            worst = std::max({worst, q[family.begin] - family.upper, family.lower - q[family.begin]});
        } else if (at.greatest != at.least) {
            worst = std::max(worst, family.ratio * q[at.greatest] - q[at.least] - family.upper);
        }
    }
    return worst;
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
