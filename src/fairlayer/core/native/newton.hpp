// Semismooth Newton on the dual of the projection, over cell sums: the whole method, without a single sample in it.
//
// The dual is concave in the multipliers nu of the statistics, and sees the data only through the sums S of outputs and
// D of slopes at the shifts s = M nu of the cells. Each step solves the quadratic model exactly (small_qp.hpp), and
// searches along the line only where the full step overshoots. For the squared discrepancy the dual is piecewise
// quadratic, so this ends in finitely many steps, 3 to 6 in practice.
#pragma once

#include "solve.hpp"

namespace fairlayer {

class Newton {
  public:
    Newton(const Rows& rows, const CellFacts& cells, Passes& passes)
        : aim(rows.families),
          nu(rows.statistics(), 0.0),
          shift(rows.cells(), 0.0),
          finest(rows.statistics()),
          tolerance(rows.statistics()),
          sums(rows.cells()),
          rows_(rows),
          cells_(cells),
          passes_(passes),
          K_(rows.statistics()),
          G_(rows.cells()),
          H_(K_),
          accepted_(K_, 0.0),
          direction_(K_),
          target_(K_),
          q_(K_),
          b_(K_),
          precision_(K_),
          floor_(G_),
          left_slopes_(G_),
          right_slopes_(G_) {}

    // Put the search at given multipliers.
    void place_at(std::span<const double> given) {
        std::copy(given.begin(), given.end(), nu.begin());
        rows_.spread(nu, shift);
    }

    // Find the multipliers at which the rows, as aimed at, hold; from those reached on. The sums must be those of the
    // present shifts. On infeasible, `nu` is the contradiction.
    Outcome run() {
        started_ = false;
        evaluations_ = idle_ = halvings_ = 0;
        for (;;) {
            Outcome end;
            if (advance(end)) return end;
            passes_.take(shift, sums);
        }
    }

    std::vector<Family> aim;  // the families, their bounds moved inwards
    Numbers nu, shift;        // at which sums are taken
    Numbers finest;           // how exactly each statistic can be met before any shift,
    Numbers tolerance;        // and at the present ones
    Sums sums;

  private:
    // A cell whose samples are all at a bound has slope 0, and a Newton step on it would be endless. Its slope is
    // taken to be `damping` times its weight: less after each full step, more after each cut one.
    static constexpr double least_damping_ = 1e-10, first_damping_ = 1e-2, most_damping_ = 1.0;
    static constexpr double near_ = 1e5;          // times the tolerance: slopes are rounding alone
    static constexpr double negligible_ = 300.0;  // times the tolerance: good enough once rounding stops progress

    // 3 to 6 in practice, and some hundreds where sizes or weights lie many decades apart; the more statistics, the
    // more each of them costs.
    int most_evaluations() const { return int(std::clamp(3e7 / (double(K_) * K_ + 1.0), 100.0, 3000.0)); }

    // Take the sums at the present shifts; true at an end, otherwise sums are wanted at new shifts.
    bool advance(Outcome& end) {
        measure();
        ++evaluations_;
        residual_ = residual();
        end = Outcome::solved;
        if (residual_ <= 1.0) return true;
        if (started_) {
            if (residual_ >= 0.5 * best_) ++idle_;
            best_ = std::min(best_, residual_);
            // The best that rounding allows: a step no longer reduces a residual that is already negligible.
            if (idle_ > 0 && residual_ <= negligible_) return true;
            if (evaluations_ > 4 && proves_contradiction(nu)) {
                end = Outcome::infeasible;
                return true;
            }
            if (evaluations_ > most_evaluations()) {
                end = Outcome::stalled;
                return true;
            }
            double next;
            if (residual_ > near_ && slope_start_ < 0.0 && search_line(next)) {
                if (right_ < infinity && right_ - left_ <= 1e-15 * right_) {
                    end = Outcome::stalled;
                    return true;
                }
                place(next);
                return false;
            }
        }
        return !next_direction(end);
    }

    void measure() {
        rows_.measure(sums.S, q_);
        tolerance = finest;
        for (int c = 0; c < G_; ++c) {
            // Outputs may have grown, and their shifts be small differences of large numbers.
            double effort = 0.0;
            for (auto e = rows_.start[c]; e < rows_.start[c + 1]; ++e) {
                effort += std::abs(rows_.value[e] * nu[rows_.statistic[e]]);
            }
            const double size = 8.0 * unit * (std::abs(sums.S[c]) + sums.D[c] * effort);
            for (auto e = rows_.start[c]; e < rows_.start[c + 1]; ++e) {
                double& own = tolerance[rows_.statistic[e]];
                own = std::max(own, std::abs(rows_.value[e]) * size);
            }
        }
    }

    // The largest breach of a row, or of complementarity between a row and its multiplier, over its tolerance.
    double residual() const {
        double worst = 0.0;
        for (const Family& family : aim) {
            if (family.kind == Kind::each) {
                const int k = family.begin;
                if (!rows_.present[k]) continue;
                const double above = q_[k] - family.upper, below = family.lower - q_[k];
                const double breach = nu[k] > 0.0   ? std::abs(above)
                                      : nu[k] < 0.0 ? std::abs(below)
                                                    : std::max(above, below);
                worst = std::max(worst, breach / tolerance[k]);
                continue;
            }
            const Extremes at(family, rows_.present, q_);
            if (at.greatest < 0) continue;
            const double top = q_[at.greatest], bottom = q_[at.least];
            if (at.greatest != at.least) {
                const double allowed = tolerance[at.greatest] + tolerance[at.least];
                worst = std::max(worst, (family.ratio * top - bottom - family.upper) / allowed);
            }
            // The pushed-down are the greatest, the pushed-up the least.
            for (int k = family.begin; k < family.end; ++k) {
                if (nu[k] > 0.0) {
                    const double breach = family.upper + bottom - family.ratio * q_[k];
                    worst = std::max(worst, breach / (tolerance[k] + tolerance[at.least]));
                } else if (nu[k] < 0.0) {
                    const double breach = family.upper + q_[k] - family.ratio * top;
                    worst = std::max(worst, breach / (tolerance[k] + tolerance[at.greatest]));
                }
            }
        }
        return worst;
    }

    // Where a statistic is held whose multiplier is positive (above) or negative: what a unit of that costs. As the
    // multipliers of a family balance, any middle will do, but the nearer to the statistics, the less rounding takes:
    // so that of a ratio is its least statistic, not the middle of a `Hold`.
    static double held_at(const Family& family, bool above, double middle) {
        if (family.kind == Kind::each) return above ? family.upper : family.lower;
        if (family.kind == Kind::difference) return middle + (above ? 0.5 : -0.5) * family.upper;
        return above ? (middle + family.upper) / family.ratio : middle;
    }

    double middle_of(const Family& family) const {
        if (family.kind == Kind::each) return 0.0;
        const Extremes at(family, rows_.present, q_);
        if (at.greatest < 0) return 0.0;
        return family.kind == Kind::difference ? 0.5 * (q_[at.greatest] + q_[at.least]) : q_[at.least];
    }

    // Slope of the negated dual along the direction, as if that had length 1, ahead of the present point or behind it.
    // The two differ where a multiplier is zero: there its price has a kink.
    double slope(bool ahead) const {
        double total = 0.0;
        for (const Family& family : aim) {
            const double middle = middle_of(family);
            for (int k = family.begin; k < family.end; ++k) {
                const double d = direction_[k];
                if (d == 0.0) continue;
                const bool above = nu[k] > 0.0 || (nu[k] == 0.0 && (d > 0.0) == ahead);
                total += d / length_ * (held_at(family, above, middle) - q_[k]);
            }
        }
        return total;
    }

    // Whether multipliers prove that no output within its bounds satisfies the rows (Farkas).
    bool proves_contradiction(std::span<const double> given) const {
        double total = 0.0, size = 0.0;
        for (const Family& family : aim) {
            for (int k = family.begin; k < family.end; ++k) {
                if (given[k] == 0.0) continue;
                const double cost = (held_at(family, given[k] > 0.0, 0.0) + rows_.offset[k]) * given[k];
                total -= cost;
                size += std::abs(cost) + std::abs(rows_.offset[k] * given[k]);
            }
        }
        for (int c = 0; c < G_; ++c) {
            double push = 0.0, effort = 0.0;
            for (auto e = rows_.start[c]; e < rows_.start[c + 1]; ++e) {
                const double part = rows_.value[e] * given[rows_.statistic[e]];
                push += part;
                effort += std::abs(part);
            }
            if (std::abs(push) > 1e-12 * effort) {
                const double extreme = push * (push > 0.0 ? cells_.least[c] : cells_.most[c]);
                total += extreme;
                size += std::abs(extreme);
            }
        }
        return total > 1e-10 * size;
    }

    // Move to accepted + alpha * direction.
    void place(double alpha) {
        alpha_ = alpha;
        for (int k = 0; k < K_; ++k) {
            nu[k] = accepted_[k] + alpha * direction_[k];
            // A multiplier that the direction takes to zero must arrive there, not next to it.
            if (alpha == 1.0 && std::abs(nu[k]) <= 1e-15 * std::abs(accepted_[k])) nu[k] = 0.0;
        }
        rows_.spread(nu, shift);
    }

    // Where along the line to look next, if this is not far or not near enough. The negated dual is convex: its slope
    // tells on which side of the bottom the present point lies.
    bool search_line(double& next) {
        const double here = slope(false), start = -slope_start_;
        if (here > 0.0 && !(alpha_ == 1.0 && here <= 0.25 * start && evaluations_ < 30)) {
            right_ = alpha_;
            slope_right_ = here;
            right_slopes_ = sums.D;
        } else if (here < -0.25 * start && alpha_ < (1.0 - 1e-3) * std::min(right_, 1.0)) {
            left_ = alpha_;
            slope_left_ = here;
            left_slopes_ = sums.D;
        } else {
            return false;
        }
        if (right_ == infinity) {
            next = std::min(8.0 * alpha_, 1.0);
            return true;
        }
        ++halvings_;
        const double drop = slope_right_ - slope_left_;
        // Every other time by half: a secant may creep past a kink.
        const double share = drop > 0.0 && halvings_ % 2 != 0 ? -slope_left_ / drop : 0.5;
        next = left_ + std::clamp(share, 0.01, 0.99) * (right_ - left_);
        return true;
    }

    // Accept the present point, and aim at the optimum of the quadratic model there. False at an end.
    bool next_direction(Outcome& end) {
        if (!started_) {
            started_ = true;
            best_ = infinity;
            damping_ = first_damping_;
            slope_start_ = 0.0;
        } else if (alpha_ == 1.0) {
            damping_ = std::max(0.01 * damping_, least_damping_);
        } else {
            damping_ = std::min(10.0 * damping_, most_damping_);
        }
        accepted_ = nu;
        for (;;) {
            for (int c = 0; c < G_; ++c) {
                floor_[c] = damping_ * cells_.weight[c];
                // The bottom of the line is a kink: slopes differ on its two sides, and the larger is the safe one.
                if (halvings_ > 0) floor_[c] = std::max({floor_[c], left_slopes_[c], right_slopes_[c]});
            }
            passes_.gram(rows_, sums, floor_, H_);
            for (int k = 0; k < K_; ++k) target_[k] = -accepted_[k];
            b_ = q_;
            H_.subtract(target_, b_);
            for (int k = 0; k < K_; ++k) precision_[k] = std::max(tolerance[k], 1e-15 * std::abs(b_[k]));
            target_ = accepted_;
            const QpOutcome found = solve_qp(H_, b_, aim, rows_.present, precision_, target_);
            if (found == QpOutcome::conflict) {
                nu = target_;
                end = Outcome::infeasible;
                return false;
            }
            for (int k = 0; k < K_; ++k) direction_[k] = target_[k] - accepted_[k];
            nu = accepted_;
            length_ = 0.0;
            for (const double d : direction_) length_ = std::max(length_, std::abs(d));
            slope_start_ = slope(true);

            // So near the end the slope is rounding alone, and the step is still right.
            if (found == QpOutcome::solved && (slope_start_ < 0.0 || residual_ <= near_)) break;
            if (damping_ == most_damping_) {
                end = residual_ <= negligible_ ? Outcome::solved : Outcome::stalled;
                return false;
            }
            damping_ = std::min(100.0 * damping_, most_damping_);
        }
        halvings_ = 0;
        left_ = 0.0;
        right_ = infinity;
        slope_left_ = slope_start_;
        std::fill(left_slopes_.begin(), left_slopes_.end(), 0.0);
        std::fill(right_slopes_.begin(), right_slopes_.end(), 0.0);
        const Numbers before = shift;
        place(1.0);
        // Shifts past the point where every sample is at a bound teach nothing: start the search this side of it.
        double moved = 0.0, alpha = 1.0;
        for (int c = 0; c < G_; ++c) {
            moved = std::max(moved, std::abs(shift[c]));
            const double change = std::abs(shift[c] - before[c]);
            if (change > cells_.reach) alpha = std::min(alpha, cells_.reach / change);
        }
        if (moved > cells_.reach && alpha < 1.0) place(alpha);
        return true;
    }

    const Rows& rows_;
    const CellFacts& cells_;
    Passes& passes_;
    int K_, G_;
    Gram H_;
    Numbers accepted_, direction_, target_, q_, b_, precision_, floor_, left_slopes_, right_slopes_;
    bool started_ = false;
    int evaluations_ = 0, idle_ = 0, halvings_ = 0;
    double alpha_ = 1.0, left_ = 0.0, right_ = infinity, slope_left_ = 0.0, slope_right_ = 0.0, slope_start_ = 0.0;
    double length_ = 1.0;  // of the direction: products of tiny numbers would underflow
    double residual_ = infinity, best_ = infinity, damping_ = first_damping_;
};

}  // namespace fairlayer
