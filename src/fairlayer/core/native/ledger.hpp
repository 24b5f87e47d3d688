// What a stream keeps of every cell, as its store holds it. Python sees an array of such structs as a structured array,
// and passes it here as a matrix of doubles, a row for each.
#pragma once

#include <span>
#include <stdexcept>

#include "arrays.hpp"
#include "floats.hpp"

namespace fairlayer::ledger {

// A running sum in two parts: `low` takes what `high` cannot hold, and is rounded itself.
struct TwoSum {
    double high = 0.0, low = 0.0;

    void add(double value) {
        double lost;
        two_sum(high, value, high, lost);
        low += lost;
    }
    double value() const { return high + low; }
};

// Count, mean and sum of squared deviations (Welford).
struct Moments {
    double count, mean, deviations;

    void add(double value) {
        count += 1.0;
        const double step = value - mean;
        mean += step / count;
        deviations += step * (value - mean);
    }
    void merge(const Moments& other) {
        if (other.count == 0.0) return;
        const double total = count + other.count, step = other.mean - mean;
        mean += step * other.count / total;
        deviations += other.deviations + step * step * count * other.count / total;
        count = total;
    }
};

// The ledger: what was emitted. Of a stream of decisions `total` counts the yeses. As CELL in stream/state.py.
struct Cell {
    double count;
    TwoSum total, target;              // of what was emitted, and of its targets where they are known
    double raw;                        // sum of the raw outputs; no promise rests on it
    double total_error, target_error;  // bounds on what rounding did to the sums
    double square;                     // sum of squares of what was emitted
    double rounding;                   // of decisions: what the fair table is off the counts, in units

    void emit(double value) {
        count += 1.0;
        total.add(value);
        total_error += unit * std::abs(total.low);
        square += value * value;
    }
    void observe(double value) {
        target.add(value);
        target_error += unit * std::abs(target.low);
    }
};

// What the leader has learned of raw outputs. As PAST in stream/state.py.
struct Past {
    Moments before, latest;  // before the latest block, and in it
    double next_look;        // size of the latest block at which drift is looked for next
    double known;            // raw outputs that entered the ring, or the weight of the score sketch
};

template <class Struct>
std::span<Struct> as(const MutableMatrix<double>& array) {
    if (array.shape(1) * sizeof(double) != sizeof(Struct)) {
        throw std::invalid_argument("an array does not have the layout of its struct");
    }
    return {reinterpret_cast<Struct*>(array.data()), array.shape(0)};
}

}  // namespace fairlayer::ledger
