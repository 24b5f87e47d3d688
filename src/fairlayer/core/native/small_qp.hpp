// The small quadratic programme inside every Newton step, by the dual active-set method of Goldfarb and Idnani
// (Mathematical Programming 27, 1983). Given the Gram matrix H of the statistics and their values b at zero
// multipliers, it finds
//
//     min_nu  1/2 nu'H nu - b'nu + price(nu),
//
// the dual of "move the statistics as little as possible, in the metric of H, until every row holds". The most violated
// row comes in, rows whose multiplier would change its sign go out, and it ends when no row is violated. A family is
// asked for its worst row, so its pairs are never listed. H need not have full rank, and a failure names the rows that
// contradict each other.
#pragma once

#include "sides.hpp"

namespace fairlayer {

// The Cholesky factor of a matrix that grows and shrinks by one row and column at a time.
class Factor {
  public:
    explicit Factor(int most = 0) : width_(most), entry_(std::size_t(most) * most) {}

    int size() const { return size_; }
    void clear() { size_ = 0; }

    // x <- L^-1 x
    void forward(std::span<double> x) const {
        for (int a = 0; a < size_; ++a) {
            const double* line = row(a);
            x[a] = (x[a] - dot(line, x.data(), a)) / line[a];
        }
    }

    // x <- L'^-1 x
    void backward(std::span<double> x) const {
        for (int a = size_ - 1; a >= 0; --a) {
            const double* line = row(a);
            x[a] /= line[a];
            for (int b = 0; b < a; ++b) x[b] -= line[b] * x[a];
        }
    }

    // Grow; `column` is the new row of the matrix, already solved forward, `corner` what is left of its diagonal.
    void append(std::span<const double> column, double corner) {
        double* line = row(size_);
        std::copy_n(column.begin(), size_, line);
        line[size_++] = std::sqrt(corner);
    }

    // Shrink, by a rotation of every two columns behind the row that goes.
    void drop(int gone) {
        for (int a = gone; a < size_ - 1; ++a) std::copy_n(row(a + 1), a + 2, row(a));
        for (int b = gone; b < size_ - 1; ++b) {
            const double left = row(b)[b], right = row(b)[b + 1];
            const double length = std::hypot(left, right), cosine = left / length, sine = right / length;
            for (int a = b; a < size_ - 1; ++a) {
                double* line = row(a);
                const double x = line[b], y = line[b + 1];
                line[b] = cosine * x + sine * y;
                line[b + 1] = cosine * y - sine * x;
            }
        }
        --size_;
    }

  private:
    double* row(int a) { return &entry_[std::size_t(a) * width_]; }
    const double* row(int a) const { return &entry_[std::size_t(a) * width_]; }

    int width_, size_ = 0;
    Numbers entry_;
};

enum class QpOutcome { solved, conflict, exhausted };

class SmallQp {
  public:
    explicit SmallQp(int K) : K_(K), factor_(K + 1), column_(K + 1), step_(K + 1), q_(K), allowance_(K) {}

    // Fill `nu`, the multipliers of the statistics, which is also where to start from. tolerance: how exactly each
    // statistic can be known. On a conflict `nu` is its direction: the statistics that cannot be where rows want them.
    QpOutcome solve(std::span<const double> H, std::span<const double> b, std::span<const Family> families,
                    std::span<const bool> present, std::span<const double> tolerance, std::span<double> nu) {
        if (K_ > Sides::few) {
            Sides sides(families, present, K_);
            Numbers guessed(nu.begin(), nu.end());
            if (sides.guess(H, b, tolerance, guessed)) {
                std::copy(guessed.begin(), guessed.end(), nu.begin());
                return QpOutcome::solved;
            }
        }
        H_ = H;
        ignored_.assign(families.size(), 0.0);
        start_from(families, b, nu);
        move_to_active(b, nu, tolerance);
        for (int round = 0; round < 20 * (K_ + 10); ++round) {
            Pair entering;
            int family = -1;
            double breach = 0.0, allowed = 0.0;
            most_violated(families, present, entering, family, breach, allowed);
            if (family < 0) {
                finish(b, nu);
                return QpOutcome::solved;
            }
            const double own = pair_gram(H_, K_, entering, entering);
            double multiplier = 0.0;
            for (bool entered = false; !entered;) {
                // How the active multipliers change, so that their rows stay in place, while that of the new one grows.
                for (int a = 0; a < size(); ++a) step_[a] = pair_gram(H_, K_, entering, active_[a]);
                factor_.forward(step_);
                double distance = own;
                for (int a = 0; a < size(); ++a) distance -= step_[a] * step_[a];
                const bool independent = size() < K_ && distance > dependent_ * own;
                std::copy_n(step_.begin(), size(), column_.begin());
                factor_.backward(step_);

                int blocking = -1;
                double shortest = infinity, full = infinity;
                for (int a = 0; a < size(); ++a) {
                    if (step_[a] > 1e-14 && !active_[a].equality && multiplier_[a] / step_[a] < shortest) {
                        blocking = a;
                        shortest = multiplier_[a] / step_[a];
                    }
                }
                if (independent) full = std::max(entering.value(q_) - entering.bound, 0.0) / distance;
                const double length = std::min(shortest, full);
                if (length == infinity) {
                    if (multiplier == 0.0 && breach <= rounding_ * allowed) {
                        ignored_[family] = breach;  // the active rows imply it, up to rounding
                        break;
                    }
                    std::fill(nu.begin(), nu.end(), 0.0);
                    entering.add_to(nu, 1.0);
                    for (int a = 0; a < size(); ++a) active_[a].add_to(nu, -step_[a]);
                    return QpOutcome::conflict;
                }
                for (int a = 0; a < size(); ++a) {
                    multiplier_[a] -= length * step_[a];
                    active_[a].add_to(nu, -length * step_[a]);
                }
                multiplier += length;
                entering.add_to(nu, length);
                fill_statistics(b, nu, tolerance);
                if (full <= shortest) {
                    factor_.append(column_, distance);
                    active_.push_back(entering);
                    multiplier_.push_back(multiplier);
                    entered = true;
                } else {
                    drop(blocking);
                }
            }
        }
        return QpOutcome::exhausted;
    }

  private:
    static constexpr double dependent_ =
        1e-12;                                // a row's squared distance to the span of the active ones, over its own
    static constexpr double rounding_ = 1e6;  // times the tolerance: too small a breach to be a contradiction

    int size() const { return int(active_.size()); }

    // The active rows of earlier multipliers, carried from statistics pushed down to those pushed up, in order.
    void start_from(std::span<const Family> families, std::span<const double> b, std::span<double> nu) {
        factor_.clear();
        active_.clear();
        multiplier_.clear();
        for (const Family& family : families) {
            if (family.kind == Kind::each) {
                const int k = family.begin;
                const bool equality = family.lower == family.upper;
                if (nu[k] > 0.0) append({k, 0, 1.0, 0.0, family.upper, equality});
                if (nu[k] < 0.0) append({0, k, 0.0, 1.0, -family.lower, equality});
                continue;
            }
            const bool equality = family.ratio == 1.0 && family.upper == 0.0;
            int up = family.begin, down = family.begin;
            double left = 0.0, right = 0.0;  // what is left of the multipliers of both
            for (;;) {
                while (down < family.end && left <= 0.0) left = std::max(nu[down++], 0.0) / family.ratio;
                while (up < family.end && right <= 0.0) right = std::max(-nu[up++], 0.0);
                if (!(left > 0.0 && right > 0.0)) break;
                append({down - 1, up - 1, family.ratio, 1.0, family.upper, equality});
                const double amount = std::min(left, right);
                left -= amount;
                right -= amount;
            }
        }
        for (;;) {  // multipliers that would have the wrong sign now go, the worst first
            refine(b);
            int worst = -1;
            for (int a = 0; a < size(); ++a) {
                if (!active_[a].equality && multiplier_[a] < 0.0 &&
                    (worst < 0 || multiplier_[a] < multiplier_[worst])) {
                    worst = a;
                }
            }
            if (worst < 0) break;
            drop(worst);
        }
    }

    void append(const Pair& row) {
        const double own = pair_gram(H_, K_, row, row);
        for (int a = 0; a < size(); ++a) column_[a] = pair_gram(H_, K_, row, active_[a]);
        factor_.forward(column_);
        double distance = own;
        for (int a = 0; a < size(); ++a) distance -= column_[a] * column_[a];
        if (size() >= K_ || !(distance > 1e-9 * own)) return;
        factor_.append(column_, distance);
        active_.push_back(row);
        multiplier_.push_back(0.0);
    }

    void drop(int gone) {
        factor_.drop(gone);
        active_.erase(active_.begin() + gone);
        multiplier_.erase(multiplier_.begin() + gone);
    }

    // The multipliers that solve the active rows as equations: more accurate than a sum of steps.
    void refine(std::span<const double> b) {
        for (int a = 0; a < size(); ++a) step_[a] = active_[a].value(b) - active_[a].bound;
        factor_.forward(step_);
        factor_.backward(step_);
        std::copy_n(step_.begin(), size(), multiplier_.begin());
    }

    void move_to_active(std::span<const double> b, std::span<double> nu, std::span<const double> tolerance) {
        std::fill(nu.begin(), nu.end(), 0.0);
        for (int a = 0; a < size(); ++a) active_[a].add_to(nu, multiplier_[a]);
        fill_statistics(b, nu, tolerance);
    }

    void finish(std::span<const double> b, std::span<double> nu) {
        const std::vector<Pair> found = std::move(active_);
        factor_.clear();
        active_.clear();
        multiplier_.clear();
        for (const Pair& row : found) {  // anew, as rotations have left their rounding in the factor
            const double own = pair_gram(H_, K_, row, row);
            for (int a = 0; a < size(); ++a) column_[a] = pair_gram(H_, K_, row, active_[a]);
            factor_.forward(column_);
            double distance = own;
            for (int a = 0; a < size(); ++a) distance -= column_[a] * column_[a];
            factor_.append(column_, std::max(distance, 1e-300));
            active_.push_back(row);
            multiplier_.push_back(0.0);
        }
        refine(b);
        std::fill(nu.begin(), nu.end(), 0.0);
        for (int a = 0; a < size(); ++a) active_[a].add_to(nu, multiplier_[a]);
    }

    // q = b - H nu, and how exactly it is known.
    void fill_statistics(std::span<const double> b, std::span<const double> nu, std::span<const double> tolerance) {
        for (int k = 0; k < K_; ++k) {
            q_[k] = b[k];
            allowance_[k] = std::abs(b[k]);
        }
        for (int i = 0; i < K_; ++i) {
            if (nu[i] == 0.0) continue;
            const double* line = &H_[std::size_t(i) * K_];
            const double amount = nu[i];
            for (int k = 0; k < K_; ++k) {
                const double part = line[k] * amount;
                q_[k] -= part;
                allowance_[k] += std::abs(part);
            }
        }
        for (int k = 0; k < K_; ++k) allowance_[k] = std::max(tolerance[k], 8.0 * unit * allowance_[k]);
    }

    void most_violated(std::span<const Family> families, std::span<const bool> present, Pair& entering, int& found,
                       double& breach, double& allowed) const {
        double worst = 1.0;
        Pair row;
        for (std::size_t f = 0; f < families.size(); ++f) {
            const double beyond = worst_row(families[f], present, q_, row);
            if (beyond == -infinity) continue;
            const double own =
                (row.p != 0.0 ? allowance_[row.plus] : 0.0) + (row.m != 0.0 ? allowance_[row.minus] : 0.0);
            if (beyond > std::max(own, 2.0 * ignored_[f]) && beyond > worst * own) {
                found = int(f);
                worst = beyond / own;
                entering = row;
                breach = beyond;
                allowed = own;
            }
        }
    }

    int K_;
    std::span<const double> H_;
    Factor factor_;
    std::vector<Pair> active_;
    Numbers multiplier_, column_, step_, q_, allowance_, ignored_;
};

}  // namespace fairlayer
