// The small quadratic programme for many groups, by the sides of its statistics (a primal-dual active-set method).
//
// Of a family of differences let c be the middle of its range: every statistic is held at c + tolerance / 2, at
// c - tolerance / 2, or lies between. Given which, multipliers and middles solve one linear system, whose matrix is as
// sparse as the groups are disjoint; and the solution says which sides were guessed wrong. For one attribute a few
// guesses suffice, whatever the number of groups. Where the guesses go round in circles, small_qp.hpp takes over.
#pragma once

#include "rows.hpp"

namespace fairlayer {

// The sum of products, in several lanes, which vectorise in a fixed order.
inline double dot(const double* a, const double* b, int n) {
    double lane[4] = {0.0, 0.0, 0.0, 0.0};
    int k = 0;
    for (; k + 4 <= n; k += 4) {
        for (int l = 0; l < 4; ++l) lane[l] += a[k + l] * b[k + l];
    }
    for (; k < n; ++k) lane[0] += a[k] * b[k];
    return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

// Cholesky factor of a matrix in place, row by row from the first entry of each that is not zero: next to nothing for
// the diagonal matrix of disjoint groups.
class SkylineFactor {
  public:
    // False where a pivot all but vanishes.
    bool factor(Numbers matrix, int n) {
        n_ = n;
        L_ = std::move(matrix);
        first_.assign(n, 0);
        for (int i = 0; i < n; ++i) {
            double* line = row(i);
            int& first = first_[i];
            while (first < i && line[first] == 0.0) ++first;
            const double own = line[i];
            for (int j = first; j <= i; ++j) {
                const int from = std::max(first, first_[j]);
                const double left = line[j] - (from < j ? dot(line + from, row(j) + from, j - from) : 0.0);
                if (j < i) {
                    line[j] = left / row(j)[j];
                } else if (left > 1e-9 * own) {
                    line[i] = std::sqrt(left);
                } else {
                    return false;
                }
            }
        }
        return true;
    }

    // x <- (L L')^-1 x
    void solve(std::span<double> x) const {
        for (int i = 0; i < n_; ++i) {
            x[i] = (x[i] - dot(row(i) + first_[i], &x[first_[i]], i - first_[i])) / row(i)[i];
        }
        for (int i = n_ - 1; i >= 0; --i) {
            x[i] /= row(i)[i];
            for (int j = first_[i]; j < i; ++j) x[j] -= row(i)[j] * x[i];
        }
    }

  private:
    double* row(int i) { return &L_[std::size_t(i) * n_]; }
    const double* row(int i) const { return &L_[std::size_t(i) * n_]; }

    int n_ = 0;
    Numbers L_;
    std::vector<int> first_;
};

class Sides {
  public:
    static constexpr int few = 24;  // statistics up to which the active-set method is quicker

    Sides(std::span<const Family> families, std::span<const bool> present, int K)
        : side(K, 0), families_(families), present_(present), family_(K), middle_(families.size(), 0.0) {
        for (std::size_t f = 0; f < families.size(); ++f) {
            for (int k = families[f].begin; k < families[f].end; ++k) family_[k] = int(f);
        }
    }

    // Fill `nu` with the solution of the programme, guessing from its sides; false where no guess proved right.
    bool guess(std::span<const double> H, std::span<const double> b, std::span<const double> tolerance,
               std::span<double> nu) {
        const int K = int(b.size());
        Numbers want(K), q(b.begin(), b.end());
        for (int k = 0; k < K; ++k) side[k] = nu[k] > 0.0 ? 1 : nu[k] < 0.0 ? -1 : 0;
        for (int round = 0; round < most_guesses_; ++round) {
            if (round > 0) {
                for (int k = 0; k < K; ++k) want[k] = b[k] - held(k, side[k] > 0);
                if (!solve(H, want, nu)) return false;
                std::copy(b.begin(), b.end(), q.begin());
                for (int i = 0; i < K; ++i) {
                    if (side[i] == 0) continue;
                    const double* line = &H[std::size_t(i) * K];
                    for (int k = 0; k < K; ++k) q[k] -= line[k] * nu[i];
                }
            }
            bool changed = round == 0;
            for (std::size_t f = 0; f < families_.size(); ++f) changed = correct(f, round, q, tolerance, nu) || changed;
            if (!changed) return true;
        }
        return false;
    }

    // Multipliers of the statistics held on a side: H nu + (share of the middle) = want there, and families balance.
    // Groups of several attributes depend on each other, so H is made definite by a little more on its diagonal, which
    // a few rounds of refinement take back. False where there is no solution.
    bool solve(std::span<const double> H, std::span<const double> want, std::span<double> nu) {
        const int K = int(nu.size());
        std::vector<int> held_ones, number(families_.size(), -1);
        for (int k = 0; k < K; ++k) {
            nu[k] = 0.0;
            if (side[k] != 0) held_ones.push_back(k);
        }
        const int n = int(held_ones.size());
        if (n == 0) return true;
        int count = 0;  // families with a middle
        Numbers share(n);
        std::vector<int> of(n);
        for (int a = 0; a < n; ++a) {
            const int f = family_[held_ones[a]];
            share[a] = middle_share(f, side[held_ones[a]]);
            if (families_[f].kind != Kind::each && number[f] < 0) number[f] = count++;
            of[a] = number[f];
        }
        Numbers matrix(std::size_t(n) * n), columns(std::size_t(count) * n, 0.0);
        for (int a = 0; a < n; ++a) {
            const double* line = &H[std::size_t(held_ones[a]) * K];
            for (int c = 0; c < n; ++c) matrix[std::size_t(a) * n + c] = line[held_ones[c]];
            matrix[std::size_t(a) * n + a] *= 1.0 + more_;
            if (of[a] >= 0) columns[std::size_t(of[a]) * n + a] = share[a];
        }
        SkylineFactor factor, schur;
        if (!factor.factor(std::move(matrix), n)) return false;
        for (int g = 0; g < count; ++g) factor.solve(std::span(columns).subspan(std::size_t(g) * n, n));
        Numbers between(std::size_t(count) * count, 0.0);
        for (int a = 0; a < n; ++a) {
            if (of[a] < 0) continue;
            for (int h = 0; h < count; ++h) between[of[a] * count + h] += share[a] * columns[std::size_t(h) * n + a];
        }
        if (!schur.factor(std::move(between), count)) return false;
        Numbers x(n), right(count), total(n, 0.0), level(count, 0.0);
        double size = 0.0, left = infinity;
        for (int round = 0; round < most_rounds_; ++round) {
            size = left = 0.0;
            std::fill(right.begin(), right.end(), 0.0);
            for (int a = 0; a < n; ++a) {
                x[a] = want[held_ones[a]];
                size = std::max(size, std::abs(x[a]));
                const double* line = &H[std::size_t(held_ones[a]) * K];
                for (int c = 0; c < n; ++c) x[a] -= line[held_ones[c]] * total[c];
                if (of[a] >= 0) {
                    x[a] -= share[a] * level[of[a]];
                    right[of[a]] += share[a] * total[a];
                }
                left = std::max(left, std::abs(x[a]));
            }
            if (left <= 1e-14 * size) break;
            factor.solve(x);
            for (int a = 0; a < n; ++a) {
                if (of[a] >= 0) right[of[a]] += share[a] * x[a];
            }
            schur.solve(right);
            for (int g = 0; g < count; ++g) level[g] += right[g];
            for (int a = 0; a < n; ++a) {
                total[a] += x[a];
                for (int g = 0; g < count; ++g) total[a] -= right[g] * columns[std::size_t(g) * n + a];
            }
        }
        if (!(left <= 1e-9 * size)) return false;
        for (int a = 0; a < n; ++a) nu[held_ones[a]] = total[a];
        for (std::size_t f = 0; f < families_.size(); ++f) {
            if (number[f] >= 0) middle_[f] = level[number[f]];
        }
        return true;
    }

    std::vector<int> side;  // of each statistic: 1 held from above, -1 from below, 0 free

  private:
    static constexpr int most_guesses_ = 40, most_rounds_ = 8;
    static constexpr double more_ = 1e-8;

    // How much a statistic held on a side moves with the middle of its family.
    double middle_share(int f, int on) const {
        if (families_[f].kind == Kind::each) return 0.0;
        return families_[f].kind == Kind::difference || on < 0 ? 1.0 : 1.0 / families_[f].ratio;
    }

    // Where a statistic is held, less what moves with the middle.
    double held(int k, bool above) const {
        const Family& family = families_[family_[k]];
        if (family.kind == Kind::each) return above ? family.upper : family.lower;
        if (family.kind == Kind::difference) return (above ? 0.5 : -0.5) * family.upper;
        return above ? family.upper / family.ratio : 0.0;
    }

    // Move the statistics of a family to their right sides; whether any moved.
    bool correct(std::size_t f, int round, std::span<const double> q, std::span<const double> tolerance,
                 std::span<const double> nu) {
        const Family& family = families_[f];
        bool changed = false;
        if (family.kind != Kind::each) {
            bool up = false, down = false;
            for (int k = family.begin; k < family.end; ++k) {
                up = up || side[k] > 0;
                down = down || side[k] < 0;
            }
            if (round == 0 && up && down) return false;
            if (!(up && down)) {  // nothing says where the middle is: take that of the extremes
                const Extremes at(family, present_, q);
                const bool alone = at.greatest == at.least;
                if (alone || family.ratio * q[at.greatest] - q[at.least] <=
                                 family.upper + tolerance[at.greatest] + tolerance[at.least]) {
                    for (int k = family.begin; k < family.end; ++k) {
                        changed = changed || side[k] != 0;
                        side[k] = 0;
                    }
                    return changed;
                }
                middle_[f] = 0.5 * (family.ratio * q[at.greatest] + q[at.least]);
            }
        }
        for (int k = family.begin; k < family.end; ++k) {
            if (!present_[k]) continue;
            const double above = q[k] - middle_share(int(f), 1) * middle_[f] - held(k, true);
            const double below = middle_share(int(f), -1) * middle_[f] + held(k, false) - q[k];
            int now = side[k];
            if (side[k] != 0) {
                if (round > 0 && nu[k] * side[k] <= 0.0) now = 0;
            } else if (above > tolerance[k]) {
                now = 1;
            } else if (below > tolerance[k]) {
                now = -1;
            }
            changed = changed || now != side[k];
            side[k] = now;
        }
        return changed;
    }

    std::span<const Family> families_;
    std::span<const bool> present_;
    std::vector<int> family_;
    Numbers middle_;
};

}  // namespace fairlayer
