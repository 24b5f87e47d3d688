// The projection, once for all who take sums: aim a little inside the rows, write, certify, and aim further inside
// where a row was missed.
//
// `Passes` has
//     measure(sums)         S, D and absolute of the outputs as they are, within their bounds
//     sums(shift, sums)     S and D at the shifts
//     write(shift, sums)    write the output at the shifts, in its own dtype; its S and D, and a bound on their error
//     exact(sums)           S of what was written, rounded once, and its error
//     gram(rows, sums, floor, H)   M' diag(max(D, floor)) M
#pragma once

#include "newton.hpp"

namespace fairlayer {

inline constexpr std::size_t long_batch = 4096;  // samples, of which more take so long that others should go on

// Look for Ctrl-C between two passes over many samples, where the lock has been released.
inline void check_interrupt(std::size_t samples) {
    if (samples <= long_batch) return;
    const nb::gil_scoped_acquire lock;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

struct Solved {
    Outcome outcome = Outcome::solved;
    Numbers nu;          // (K,) multipliers of the statistics
    Numbers shift;       // (G,)
    Numbers slopes;      // (G,) sums of slopes where the output was written
    Numbers missed;      // (F,) by how much each family may be missed; 0 or less where it certainly holds
    Numbers statistics;  // (K,) of the output
    Numbers absolute;    // (G,) sums of |y| before any shift
};

struct Settings {
    double rounding = unit;           // relative rounding error of the output; 0 where rows may be missed by it
    std::span<const double> start{};  // multipliers to begin with; none to leave alone what satisfies the rows
    std::span<const double> guess{};  // multipliers to begin with where it does not
};

template <class Passes>
Solved solve(const Rows& rows, const CellFacts& cells, Passes& passes, const Settings& settings) {
    constexpr int most_repairs = 12, patient = 2;  // repairs after which the aim moves by more than what was missed
    const std::size_t F = rows.families.size();
    Newton<Passes> newton(rows, cells, passes);
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
        passes.sums(newton.shift, sums);
    }
    if (settings.rounding > unit) {  // the output is rounded so much more coarsely that this makes no difference
        for (double& one : newton.finest) one *= 256.0;
    }
    first_margins(rows, sums.absolute, settings.rounding, newton.tolerance, margin);
    double least_missed = infinity;
    bool stalled = false;
    for (int repairs = 0;; ++repairs) {
        for (std::size_t f = 0; f < F; ++f) {
            newton.aim[f].lower = rows.families[f].lower + margin[f];
            newton.aim[f].upper = rows.families[f].upper - margin[f];
        }
        const Outcome outcome = newton.run();
        if (outcome == Outcome::infeasible) {
            if (repairs > 0) break;  // what was written before is the best there is
            newton.place_at(Numbers(rows.statistics(), 0.0));
            if (std::any_of(margin.begin(), margin.end(), [](double one) { return one > 0.0; })) {
                std::fill(margin.begin(), margin.end(), 0.0);  // rows that just meet cannot be aimed inside of
                passes.sums(newton.shift, sums);
                --repairs;
                continue;
            }
            write();
            return finish(outcome);
        }
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
        passes.sums(newton.shift, sums);
    }
    if (newton.nu != best) {
        newton.place_at(best);
        write();
    }
    return finish(stalled ? Outcome::stalled : Outcome::solved);
}

// Multipliers v, one for each statistic, with A D A' v = A D g over the active rows A, and 0 elsewhere: what the
// derivative of the projection needs. H: Gram matrix of the slopes; q: statistics of D g.
Numbers solve_active(const Rows& rows, std::span<const double> nu, std::span<const double> H,
                     std::span<const double> q);

}  // namespace fairlayer
