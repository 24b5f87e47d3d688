// The projection, once for all who take sums: aim a little inside the rows, write, certify, and aim further inside
// where a row was missed.
#pragma once

#include "small_qp.hpp"

namespace fairlayer {

inline constexpr std::size_t long_batch = 4096;  // samples; more take so long that other threads should go on

// Look for Ctrl-C between two passes over many samples, where the lock has been released.
inline void check_interrupt(std::size_t samples) {
    if (samples <= long_batch) return;
    const nb::gil_scoped_acquire lock;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

// What is known of the cells: sums at the present shifts.
struct Sums {
    explicit Sums(int cells) : S(cells), D(cells), absolute(cells), error(cells) {}

    Numbers S;         // of outputs
    Numbers D;         // of slopes
    Numbers absolute;  // of |outputs| before any shift
    Numbers error;     // a bound on the error of S, where an output was written
};

// What each cell is like, whatever the shifts.
struct CellFacts {
    std::span<const double> count;  // samples
    Numbers weight;                 // their weight, times the usual slope of a sample
    Numbers least, most;            // what the sum can be within the bounds
    double reach = infinity;        // beyond this shift every sample is at a bound, or outputs would be of any size
};

// Who takes the sums: loops over samples in memory, or an object in Python.
class Passes {
  public:
    virtual ~Passes() = default;

    // S, D and absolute of the outputs as they are, within their bounds.
    virtual void measure(Sums& sums) = 0;
    // S and D at the shifts.
    virtual void take(std::span<const double> shift, Sums& sums) = 0;
    // Write the output at the shifts, in its own dtype; its S and D, and a bound on the error of S.
    virtual void write(std::span<const double> shift, Sums& sums) = 0;
    // S of what was written, rounded once, and its error.
    virtual void exact(Sums& sums) = 0;
    // M' diag(max(D, floor)) M, or what takes its place where slopes are not numbers.
    virtual void gram(const Rows& rows, const Sums& sums, std::span<const double> floor, Gram& H) {
        Numbers slopes(sums.D);
        for (std::size_t c = 0; c < slopes.size(); ++c) slopes[c] = std::max(slopes[c], floor[c]);
        rows.gram(slopes, H);
    }
};

// Of the distance from z: what aiming inside the rows may add to it.
inline constexpr double nearly = 5e-7;

enum class Outcome { solved, infeasible, stalled };

struct Solved {
    Outcome outcome = Outcome::solved;
    Numbers nu;          // (K,) multipliers of the statistics
    Numbers shift;       // (G,)
    Numbers slopes;      // (G,) sums of slopes where the output was written
    Numbers missed;      // (F,) by how much each family may be missed; 0 or less where it certainly holds
    Numbers statistics;  // (K,) of the output
    Numbers absolute;    // (G,) sums of |y| before any shift
    bool tight = false;  // of the squared discrepancy: whether aiming inside the rows cost next to nothing
};

struct Settings {
    double rounding = unit;           // relative rounding error of the output; 0 where rows may be missed by it
    std::span<const double> start{};  // multipliers to begin with; none to leave alone what satisfies the rows
    std::span<const double> guess{};  // multipliers to begin with where it does not
};

Solved solve(const Rows& rows, const CellFacts& cells, Passes& passes, const Settings& settings);

// By how much some row of each family may be missed, at most; 0 or less where all of its rows certainly hold.
// S: cell sums of the output as it was written; error: a bound on the error of each.
void shortfalls(const Rows& rows, std::span<const double> S, std::span<const double> error, std::span<double> missed);

// Whether no row may be missed. What is no number is not known to hold.
inline bool all_hold(std::span<const double> missed) {
    return std::all_of(missed.begin(), missed.end(), [](double m) { return m <= 0.0; });
}

}  // namespace fairlayer
