// The guarantee: rows of the output as it was written, with a bound on every rounding error made in checking them.
//
// A solver's tolerance is no guarantee. The output is rounded to its own dtype first; then its cell sums are taken, and
// a row counts as satisfied only if its value plus a bound on the error of this very computation lies within its
// bounds.
#include "solve.hpp"

#include "newton.hpp"

namespace fairlayer {

namespace {

// How exactly a solver can hope to meet each statistic: a few roundings of what it is made of and compared with.
void solver_tolerance(const Rows& rows, std::span<const double> absolute, std::span<const double> count,
                      std::span<double> tolerance) {
    const int K = rows.statistics();
    Numbers size(K), samples(K, 0.0);
    rows.sizes(absolute, size);
    for (int c = 0; c < rows.cells(); ++c) {
        for (auto e = rows.start[c]; e < rows.start[c + 1]; ++e) samples[rows.statistic[e]] += count[c];
    }
    for (const Family& family : rows.families) {
        double bound = 0.0;
        if (std::isfinite(family.upper)) bound = std::abs(family.upper);
        if (std::isfinite(family.lower)) bound = std::max(bound, std::abs(family.lower));
        for (int k = family.begin; k < family.end; ++k) {
            tolerance[k] = std::max(unit * ((8.0 + std::sqrt(samples[k])) * size[k] + 8.0 * bound), 1e-300);
        }
    }
}

// How far the bounds of a family can move inwards before they meet. size: of its statistics.
double room(const Family& family, double size) {
    // Equal means of this size leave so much of a ratio.
    if (family.kind == Kind::ratio) return 0.1 * (1.0 - family.ratio) * size;
    return 0.5 * (family.upper - family.lower);
}

// How far inside its bounds each family is aimed at first: what rounding the output is likely to move it. Roundings do
// not cancel, however many samples there are: those of one cell are moved by the same shift, and what is left of it on
// the grid of the dtype is the same for all outputs between two powers of 2.
void first_margins(const Rows& rows, std::span<const double> absolute, double rounding,
                   std::span<const double> tolerance, std::span<double> margin) {
    Numbers size(rows.statistics());
    rows.sizes(absolute, size);
    for (std::size_t f = 0; f < rows.families.size(); ++f) {
        const Family& family = rows.families[f];
        double worst = 0.0, largest = 0.0;
        for (int k = family.begin; k < family.end; ++k) {
            worst = std::max(worst, (0.75 * rounding + 12.0 * unit) * size[k] + tolerance[k]);
            largest = std::max(largest, size[k]);
        }
        margin[f] = std::min(family.kind == Kind::each ? worst : 2.0 * worst, 0.25 * room(family, largest));
    }
}

// Aim further inside where a row was missed; false where no room is left. eager: everywhere, and by more.
bool widen_margins(const Rows& rows, std::span<const double> missed, std::span<const double> tolerance, bool eager,
                   std::span<double> margin) {
    bool changed = false;
    for (std::size_t f = 0; f < rows.families.size(); ++f) {
        if (!(missed[f] > 0.0 || eager)) continue;
        const Family& family = rows.families[f];
        double finest = 0.0;
        for (int k = family.begin; k < family.end; ++k) finest = std::max(finest, tolerance[k]);
        const double beyond = std::max(missed[f], 0.0);
        double wider = margin[f] + 1.05 * beyond + finest;
        if (eager) wider = std::max(wider, 2.0 * margin[f] + 1.5 * beyond);
        wider = std::min(wider, room(family, finest / unit));
        changed = changed || wider > margin[f];
        margin[f] = wider;
    }
    return changed;
}

// Whether every row that may be missed may also hold, were the sums known without error.
bool in_doubt(const Rows& rows, std::span<const double> S, std::span<const double> missed) {
    Numbers surely(missed.size()), none(S.size(), 0.0);
    shortfalls(rows, S, none, surely);
    for (std::size_t f = 0; f < missed.size(); ++f) {
        if (missed[f] > 0.0 && surely[f] > missed[f] - surely[f]) return false;
    }
    return true;
}

// Whether no output that satisfies the rows is nearer than this one, up to `nearly` of the distance and the rounding of
// outputs. By weak duality half the squared distance is at most so much more than the least as multipliers cost on
// their bounds and do not cost where the statistics are. Distance and size of the output are estimated from below.
bool is_tight(const Rows& rows, const CellFacts& cells, const Solved& found, std::span<const double> finest,
              double rounding) {
    double lost = 0.0, square = 0.0, moved = 0.0, size = 0.0;
    for (int f = 0; f < int(rows.families.size()); ++f) {
        const Family& family = rows.families[f];
        const Extremes at(family, rows.present, found.statistics);
        for (int k = family.begin; k < family.end; ++k) {
            if (found.nu[k] == 0.0) continue;
            const Hold held(k, f, family, found.nu[k] > 0.0 ? 1.0 : -1.0);
            const double middle = held.share == 0.0 ? 0.0 : found.statistics[at.least] + 0.5 * family.upper;
            lost += found.nu[k] * (held.share * middle + held.at - found.statistics[k]);
            lost += std::abs(found.nu[k]) * finest[k];
        }
    }
    for (int c = 0; c < rows.cells(); ++c) {
        const double shift = found.shift[c] * found.shift[c];
        square += found.slopes[c] * shift;
        moved += cells.weight[c] * shift;
        if (cells.weight[c] > 0.0) size += found.absolute[c] * found.absolute[c] / cells.weight[c];
    }
    const double distance = std::sqrt(square), least_size = std::max(std::sqrt(size) - std::sqrt(moved), 0.0);
    return lost == 0.0 || 1.1 * lost <= distance * (nearly * distance + rounding * least_size);
}

}  // namespace

void shortfalls(const Rows& rows, std::span<const double> S, std::span<const double> error, std::span<double> missed) {
    constexpr double normal = 0x1p-1022;  // the least float64 that has all its digits
    const int K = rows.statistics();
    Numbers q(K), low(K, 0.0), doubt(K);
    for (int k = 0; k < K; ++k) {
        q[k] = -rows.offset[k];
        doubt[k] = unit * std::abs(rows.offset[k]);
    }
    for (int c = 0; c < rows.cells(); ++c) {
        for (auto e = rows.start[c]; e < rows.start[c + 1]; ++e) {
            const auto k = rows.statistic[e];
            double lost;
            two_sum(q[k], rows.value[e] * S[c], q[k], lost);
            low[k] += lost;
            // The entry of M is rounded twice, and so is the product; what is left of the sum, hardly at all.
            doubt[k] += std::max(std::abs(rows.value[e]), normal) * (error[c] + 4.0 * unit * std::abs(S[c]));
            if (S[c] != 0.0) doubt[k] += 16.0 * tiny;  // what a product has below the range of floats
        }
    }
    for (int k = 0; k < K; ++k) {
        q[k] += low[k];
        doubt[k] = (doubt[k] + 2.0 * unit * std::abs(q[k])) * (1.0 + 1e-9);
    }
    for (std::size_t f = 0; f < rows.families.size(); ++f) {
        const Family& family = rows.families[f];
        missed[f] = -infinity;
        if (family.kind == Kind::each) {
            const int k = family.begin;
            if (!rows.present[k]) continue;
            missed[f] = std::max(q[k] - family.upper, family.lower - q[k]) + doubt[k] + unit * std::abs(q[k]);
            continue;
        }
        double greatest = -infinity, least = infinity;
        int found = 0;
        for (int k = family.begin; k < family.end; ++k) {
            if (!rows.present[k]) continue;
            ++found;
            greatest = std::max(greatest, family.ratio * q[k] + doubt[k]);
            least = std::min(least, q[k] - doubt[k]);
        }
        if (found > 1) {
            missed[f] = greatest - least - family.upper + 2.0 * unit * (std::abs(greatest) + std::abs(least));
        }
    }
}

Solved solve(const Rows& rows, const CellFacts& cells, Passes& passes, const Settings& settings) {
    constexpr int most_repairs = 12, patient = 2;  // repairs after which the aim moves by more than what was missed
    const std::size_t F = rows.families.size();
    Newton newton(rows, cells, passes);
    Solved found;
    Numbers margin(F, 0.0), missed(F), best;
    Sums& sums = newton.sums;

    auto finish = [&](Outcome outcome) {
        found.outcome = outcome;
        found.nu = newton.nu;
        found.shift = newton.shift;
        found.slopes = sums.D;
        found.missed = missed;
        found.absolute = sums.absolute;
        found.statistics.resize(rows.statistics());
        rows.measure(sums.S, found.statistics);
        found.tight = is_tight(rows, cells, found, newton.finest, settings.rounding);
        return found;
    };
    auto write = [&] {  // and certify
        passes.write(newton.shift, sums);
        shortfalls(rows, sums.S, sums.error, missed);
        if (!all_hold(missed) && in_doubt(rows, sums.S, missed)) {
            passes.exact(sums);
            shortfalls(rows, sums.S, sums.error, missed);
        }
    };

    passes.measure(sums);
    solver_tolerance(rows, sums.absolute, cells.count, newton.finest);
    newton.tolerance = newton.finest;
    if (settings.start.empty()) {
        for (int c = 0; c < rows.cells(); ++c) {
            sums.error[c] = (cells.count[c] + 4.0) * unit * sums.absolute[c] + cells.count[c] * tiny;
        }
        shortfalls(rows, sums.S, sums.error, missed);
        bool near = true;  // it holds, or misses its rows by so little that only rational arithmetic can tell
        for (std::size_t f = 0; f < F; ++f) {
            double allowed = 0.0;
            for (int k = rows.families[f].begin; k < rows.families[f].end; ++k) {
                allowed = std::max(allowed, 16.0 * newton.tolerance[k]);
            }
            near = near && missed[f] <= allowed;
        }
        if (near) {
            write();
            return finish(Outcome::solved);
        }
    }
    const auto begin = settings.start.empty() ? settings.guess : settings.start;
    if (!begin.empty()) {
        newton.place_at(begin);
        passes.take(newton.shift, sums);
    }
    if (settings.rounding > unit) {  // the output is rounded so much more coarsely that this makes no difference
        for (double& one : newton.finest) one *= 256.0;
    }
    first_margins(rows, sums.absolute, settings.rounding, newton.tolerance, margin);
    auto aim_inside = [&] {
        for (std::size_t f = 0; f < F; ++f) {
            newton.aim[f].lower = rows.families[f].lower + margin[f];
            newton.aim[f].upper = rows.families[f].upper - margin[f];
        }
        return newton.run();
    };
    const Numbers none(rows.statistics(), 0.0);
    Outcome outcome = aim_inside();
    const bool inside = std::any_of(margin.begin(), margin.end(), [](double one) { return one > 0.0; });
    if (outcome == Outcome::infeasible && inside) {  // rows that just meet cannot be aimed inside of
        std::fill(margin.begin(), margin.end(), 0.0);
        newton.place_at(none);
        passes.take(newton.shift, sums);
        outcome = aim_inside();
    }
    if (outcome == Outcome::infeasible) {
        newton.place_at(none);
        write();
        return finish(outcome);
    }
    double least_missed = infinity;
    bool stalled = false;
    for (int repairs = 0; outcome != Outcome::infeasible; ++repairs) {  // if it is, what was written before is the best
        write();
        const bool converged = outcome == Outcome::solved;
        if (all_hold(missed) || (converged && settings.rounding == 0.0)) return finish(Outcome::solved);
        stalled = !converged;
        const double worst = *std::max_element(missed.begin(), missed.end());
        if (worst < least_missed) {
            least_missed = worst;
            best = newton.nu;
        }
        if (repairs == most_repairs || !widen_margins(rows, missed, newton.tolerance, repairs >= patient, margin))
            break;
        passes.take(newton.shift, sums);
        outcome = aim_inside();
    }
    if (newton.nu != best) {
        newton.place_at(best);
        write();
    }
    return finish(stalled ? Outcome::stalled : Outcome::solved);
}

}  // namespace fairlayer
