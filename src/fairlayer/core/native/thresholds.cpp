// Thresholds for a stream of decisions: what is remembered of raw scores, and the prices of groups that follow from it.
//
// Moving a score across its threshold costs the square of its distance, so the last one moved says what a change of a
// cell's rate costs. Each group has a price; the prices of its groups add up to what a cell pays at most, and its
// threshold is moved by the root of that. One attribute after the other (coordinate ascent on the dual), prices are
// found that put its rates into the best range, given the prices of the others.
#include <algorithm>
#include <utility>

#include "ledger.hpp"

namespace fairlayer::ledger {

constexpr int BINS = 128;      // of distances from the threshold, on either side
constexpr int PER_OCTAVE = 4;  // finer the nearer: what is moved across the threshold lies near it
constexpr int DEPTH = 16;      // octaves below the unit of distances, in which bins end; about as many are above it
constexpr double MOST_KNOWN = 8192.0;  // scores of a cell after which their weight is halved
constexpr int ROUNDS = 3;              // through the attributes, in one solve
constexpr int HALVINGS = 16;           // of the interval that the upper end of a range is looked for in
constexpr double CLOSE = 1e-6;         // to a rate that is aimed at

// How many scores of a cell are how far from the threshold.
struct Sketch {
    double above[BINS], below[BINS];
};

struct Place {
    int bin;
    double part;  // how far into the bin, from 0 to 1
};

Place place_of(double distance, double measure) {
    const double scaled = distance / measure;
    if (scaled < std::ldexp(1.0, -DEPTH)) return {0, std::ldexp(scaled, DEPTH)};
    int exponent = 0;
    const double mantissa = std::frexp(scaled, &exponent), place = (2.0 * mantissa - 1.0) * PER_OCTAVE;
    const int part = static_cast<int>(place), bin = 1 + PER_OCTAVE * (exponent - 1 + DEPTH) + part;
    return bin >= BINS ? Place{BINS - 1, 1.0} : Place{bin, place - part};
}

// Raw scores into the sketches of their cells, and into the moments of their latest blocks. measure: the unit of
// distances, 0 before the first; returned.
double learn_scores(const MutableMatrix<double>& past, const MutableMatrix<double>& sketches, const Int32s& cell,
                    const Doubles& raw, double threshold, double measure) {
    const std::span<Past> all = as<Past>(past);
    const std::span<Sketch> known = as<Sketch>(sketches);
    for (std::size_t i = 0; i < cell.size(); ++i) {
        Past& own = all[cell.data()[i]];
        Sketch& sketch = known[cell.data()[i]];
        const double distance = raw.data()[i] - threshold;
        if (measure == 0.0 && distance != 0.0) {
            int exponent = 0;
            std::frexp(distance, &exponent);
            measure = std::ldexp(1.0, exponent);
        }
        const int bin = measure > 0.0 ? place_of(std::abs(distance), measure).bin : 0;
        (distance >= 0.0 ? sketch.above : sketch.below)[bin] += 1.0;
        own.known += 1.0;
        own.latest.add(raw.data()[i]);
        if (own.known > MOST_KNOWN) {
            own.known *= 0.5;
            for (double& count : sketch.above) count *= 0.5;
            for (double& count : sketch.below) count *= 0.5;
        }
    }
    return measure;
}

double signed_root(double x) { return std::copysign(std::sqrt(std::abs(x)), x); }
double signed_square(double x) { return x * std::abs(x); }

// The shares of a cell's scores that are nearer to the threshold than the start of each bin.
struct Distribution {
    double above[BINS + 1] = {}, below[BINS + 1] = {};

    Distribution(const Sketch& sketch, double weight) {
        const double scale = 1.0 / std::max(weight, 1e-300);
        for (int b = 0; b < BINS; ++b) {
            above[b + 1] = above[b] + sketch.above[b] * scale;
            below[b + 1] = below[b] + sketch.below[b] * scale;
        }
    }
    // The share of scores that are at or above the threshold once it is moved by x.
    double share_above(double x, double measure) const {
        const double* side = x > 0.0 ? above : below;
        const auto [bin, part] = place_of(std::abs(x), measure);
        const double nearer = side[bin] + part * (side[bin + 1] - side[bin]);
        return above[BINS] + (x > 0.0 ? -nearer : nearer);
    }
};

// A group: what was decided, and its cells.
struct Group {
    double yes;                        // so far
    double total;                      // decisions made and to come
    std::vector<std::size_t> members;  // cells to which decisions are to come
    double free = 0.0;                 // its rate without a price of its own
    double wanted = 0.0;               // the price that is tried
};

class PriceSolver {
  public:
    std::vector<Distribution> distribution;  // by cell
    std::vector<double> future;              // decisions to come, by cell
    std::vector<double> rest;                // what a cell pays besides the price that is looked for
    double measure;                          // the unit of distances

    // The rate of a group, decided and to come, at a price of its own besides the rest.
    double rate(const Group& group, double price) const {
        double yes = group.yes;
        for (const std::size_t c : group.members) {
            yes += future[c] * distribution[c].share_above(signed_root(rest[c] + price), measure);
        }
        return yes / group.total;
    }

    // The price at which a group has the rate `target`, or comes nearest to it: regula falsi (Illinois) in the root of
    // the price, from `start` on. Rates fall with the price.
    double price(const Group& group, double target, double start) const {
        struct Point {
            double root, excess;
        };
        const auto at = [&](double root) { return Point{root, rate(group, signed_square(root)) - target}; };
        const double far = std::ldexp(measure, 16);
        Point left = at(std::clamp(signed_root(start), -far, far)), right = left;
        if (std::abs(left.excess) <= CLOSE) return start;
        double step = std::max(0.125 * std::abs(left.root), std::ldexp(measure, -8));
        for (; right.excess > 0.0 && right.root < far; step *= 3.0)
            left = std::exchange(right, at(std::min(right.root + step, far)));
        for (; left.excess < 0.0 && left.root > -far; step *= 3.0)
            right = std::exchange(left, at(std::max(left.root - step, -far)));
        if (left.excess <= 0.0) return signed_square(left.root);  // out of reach
        if (right.excess >= 0.0) return signed_square(right.root);
        Point last = left;
        const Point* kept = nullptr;  // the end that was kept last time, whose weight is halved if it is kept again
        for (int i = 0; i < 30 && std::abs(last.excess) > CLOSE && right.root - left.root > 1e-9 * measure; ++i) {
            last = at((left.root * right.excess - right.root * left.excess) / (right.excess - left.excess));
            Point& other = last.excess > 0.0 ? right : left;
            (last.excess > 0.0 ? left : right) = last;
            if (kept == &other) other.excess *= 0.5;
            kept = &other;
        }
        return signed_square(last.root);
    }

    // The prices of one attribute's groups: rates between coefficient * top - width and top, for the best top.
    void solve_family(std::span<Group> groups, double coefficient, double width) const {
        double least = 1.0, most = 0.0;
        for (Group& group : groups) {
            if (group.total == 0.0) continue;
            group.free = rate(group, 0.0);
            least = std::min(least, group.free);
            most = std::max(most, group.free);
        }
        double bottom = (least + width) / coefficient, top = most;
        if (!(bottom < top)) {  // all in range by themselves
            for (Group& group : groups) group.wanted = 0.0;
            return;
        }
        for (int i = 0; i < HALVINGS; ++i) {
            const double high = 0.5 * (bottom + top), low = coefficient * high - width;
            double push = 0.0;  // what raising the range would save, less what it would cost
            for (Group& group : groups) {
                const bool over = group.free > high, under = group.free < low;
                if (group.total == 0.0 || !(over || under)) {
                    group.wanted = 0.0;
                    continue;
                }
                group.wanted = price(group, over ? high : low, group.wanted);
                push += (over ? 1.0 : coefficient) * group.total * group.wanted;
            }
            (push > 0.0 ? bottom : top) = high;
        }
    }
};

// Find the price of every group, in place. group: (G, F) the group of each cell in each family; coefficient, width: by
// family; future: decisions to come, by cell; count, yes: of each group so far.
void solve_prices(const MutableMatrix<double>& past, const MutableMatrix<double>& sketches, double measure,
                  const Int64Matrix& group, const Int64s& first, const Doubles& coefficient, const Doubles& width,
                  const Doubles& future, const Doubles& count, const Doubles& yes, const MutableVector<double>& price) {
    const std::span<Past> all = as<Past>(past);
    const std::span<Sketch> known = as<Sketch>(sketches);
    const std::size_t G = all.size(), F = coefficient.size();
    const auto member = [&](std::size_t c, std::size_t f) { return group.data()[c * F + f]; };
    PriceSolver solver{{}, {future.data(), future.data() + G}, std::vector<double>(G), measure};
    for (std::size_t c = 0; c < G; ++c) solver.distribution.emplace_back(known[c], all[c].known);
    std::vector<Group> groups;
    for (std::size_t k = 0; k < price.size(); ++k) {
        groups.push_back({yes.data()[k], count.data()[k], {}});
    }
    for (std::size_t c = 0; c < G; ++c) {
        for (std::size_t f = 0; f < F && solver.future[c] > 0.0; ++f) {
            groups[member(c, f)].total += solver.future[c];
            groups[member(c, f)].members.push_back(c);
        }
    }
    for (int round = 0; round < (F > 1 ? ROUNDS : 1); ++round) {
        double moved = 0.0;
        for (std::size_t f = 0; f < F; ++f) {
            for (std::size_t c = 0; c < G; ++c) {
                solver.rest[c] = 0.0;
                for (std::size_t other = 0; other < F; ++other) {
                    if (other != f) solver.rest[c] += price.data()[member(c, other)];
                }
            }
            const std::size_t begin = first.data()[f], end = first.data()[f + 1];
            for (std::size_t k = begin; k < end; ++k) groups[k].wanted = price.data()[k];
            solver.solve_family(std::span(groups).subspan(begin, end - begin), coefficient.data()[f], width.data()[f]);
            for (std::size_t k = begin; k < end; ++k) {
                moved = std::max(moved, std::abs(signed_root(groups[k].wanted) - signed_root(price.data()[k])));
                price.data()[k] = groups[k].wanted;
            }
        }
        if (moved <= 1e-3 * measure) break;
    }
}

}  // namespace fairlayer::ledger

void fairlayer::bind_thresholds(nb::module_& m) {
    m.def("learn_scores", &ledger::learn_scores, array("past"), array("sketches"), array("cell"), array("raw"),
          nb::arg("threshold"), nb::arg("unit"));
    m.def("solve_prices", &ledger::solve_prices, array("past"), array("sketches"), nb::arg("unit"), array("group"),
          array("first"), array("coefficient"), array("width"), array("future"), array("count"), array("yes"),
          array("price"));
}
