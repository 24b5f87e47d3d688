// The ledger of decisions: yes and no, one at a time, as the rounding of a table that is fair to the last digit.
//
// Beside the yeses P of every cell there is always a *fair table*: numbers v, not whole, within half a decision of P in
// every cell, such that the rates that v gives to the groups of each attribute lie within a range that its constraint
// admits (a width of at most the tolerance; or ends in the given ratio), and one rate q lies within all these ranges.
//
// Such a table can be kept for ever. The next decision adds q to v in its cell, which moves no rate out of its range;
// and of yes and no, one leaves P within half a decision of v there. So a group of L cells with N decisions is always
// within L / (2 N) of a fair rate. The leader's wish is granted wherever some fair table is near the counts it leads
// to; otherwise it is overruled.
//
// All of this is in whole numbers: rates and tables in units of 2^-30, tolerances rounded down and ratios up to them.
// It is exact up to 2^31 decisions.
#include <algorithm>
#include <optional>

#include "ledger.hpp"

namespace fairlayer::ledger {

using Whole = std::int64_t;

constexpr Whole UNITS = Whole{1} << 30, HALF = UNITS / 2;  // of 1
constexpr int SWEEPS = 12;                                 // in search of a fair table

Whole floor_div(Whole a, Whole b) { return a / b - (a % b < 0 ? 1 : 0); }  // b > 0
Whole ceil_div(Whole a, Whole b) { return -floor_div(-a, b); }

struct Counts {
    Whole decisions = 0, yes = 0;
    Whole cells = 0;  // that have decisions

    // Bounds, in units, on the rates from which the counts are at most half a decision per cell away.
    Whole lowest() const { return ceil_div(UNITS * (2 * yes - cells), 2 * decisions); }
    Whole highest() const { return floor_div(UNITS * (2 * yes + cells), 2 * decisions); }
};

// One attribute within one constraint: its groups are the statistics first to last - 1.
struct Family {
    std::size_t first, last;
    bool is_ratio;
    Whole limit;  // in units: the width of a range of rates, or the ratio of its ends

    bool admits(Whole low, Whole high) const { return is_ratio ? low * UNITS >= limit * high : high - low <= limit; }
    Whole highest(Whole low) const { return is_ratio ? low * UNITS / limit : low + limit; }
    Whole lowest(Whole high) const {
        return is_ratio ? ceil_div(limit * high, UNITS) : std::max(high - limit, Whole{0});
    }
};

class DecisionLedger {
  public:
    DecisionLedger(std::span<Cell> cells, std::span<const Whole> group, std::vector<Family> families, Whole start)
        : level(start),
          state_(cells),
          group_(group),
          families_(std::move(families)),
          cells_(cells.size()),
          groups_(families_.back().last),
          table_(cells.size()),
          found_(cells.size()) {
        for (std::size_t c = 0; c < cells.size(); ++c) {
            table_[c] = static_cast<Whole>(cells[c].rounding);
            const auto decisions = static_cast<Whole>(cells[c].count), yes = static_cast<Whole>(cells[c].total.high);
            add(c, decisions, yes);
        }
    }

    // Decide the next sample, in cell c: as wanted where a fair table is near, otherwise the other way.
    bool decide(std::size_t c, bool wanted) {
        add(c, 1, 0);
        for (const bool answer : {wanted, !wanted}) {
            add(c, 0, answer);
            if (const auto there = find_table()) {
                level = *there;
                table_ = found_;
                return answer;
            }
            const Whole moved = table_[c] + level - (answer ? UNITS : 0);
            if (std::abs(moved) <= HALF) {  // of one of the two this is always so
                table_[c] = moved;
                return answer;
            }
            add(c, 0, -Whole{answer});
        }
        return wanted;  // not reached: see the theorem above
    }

    void keep() const {
        for (std::size_t c = 0; c < table_.size(); ++c) state_[c].rounding = static_cast<double>(table_[c]);
    }

    Whole level;  // the rate that lies in all ranges of the table, in units; -1 before the first decision

  private:
    std::size_t group(std::size_t c, std::size_t f) const { return group_[c * families_.size() + f]; }

    void add(std::size_t c, Whole decisions, Whole yes) {
        const Whole begun = cells_[c].decisions == 0 && decisions > 0;
        const auto update = [=](Counts& counts) {
            counts.decisions += decisions;
            counts.yes += yes;
            counts.cells += begun;
        };
        update(cells_[c]);
        update(all_);
        for (std::size_t f = 0; f < families_.size(); ++f) update(groups_[group(c, f)]);
    }

    // A fair table near the counts, into `found_`; the rate that lies in all its ranges.
    std::optional<Whole> find_table() {
        const Whole middle = UNITS * all_.yes / all_.decisions;
        if (counts_are_fair()) {
            std::fill(found_.begin(), found_.end(), 0);
            return middle;
        }
        if (const auto level_found = near_one_range(middle)) return level_found;
        if (families_.size() > 1 && near_ranges()) {
            Whole total = UNITS * all_.yes;
            for (const Whole off : found_) total += off;
            return floor_div(total, all_.decisions);
        }
        return std::nullopt;
    }

    bool counts_are_fair() const {
        return std::all_of(families_.begin(), families_.end(), [this](const Family& family) {
            Whole low = UNITS, high = 0;
            for (std::size_t k = family.first; k < family.last; ++k) {
                if (groups_[k].decisions == 0) continue;
                low = std::min(low, UNITS * groups_[k].yes / groups_[k].decisions);
                high = std::max(high, ceil_div(UNITS * groups_[k].yes, groups_[k].decisions));
            }
            return family.admits(low, high);
        });
    }

    // A table whose cells, too, are in one range. With one attribute, whose groups are the cells, it is found wherever
    // there is one.
    std::optional<Whole> near_one_range(Whole middle) {
        Whole low = UNITS, high = 0;
        for (const Counts& cell : cells_) {
            if (cell.decisions == 0) continue;
            low = std::min(low, cell.highest());
            high = std::max(high, cell.lowest());
        }
        if (high <= low) low = high = std::clamp(middle, high, low);
        for (const Family& family : families_) {
            if (!family.admits(low, high)) return std::nullopt;
        }
        for (std::size_t c = 0; c < cells_.size(); ++c) {
            const Whole whole = UNITS * cells_[c].yes, decisions = cells_[c].decisions;
            found_[c] = std::clamp(whole, low * decisions, high * decisions) - whole;
        }
        return std::clamp(middle, low, high);
    }

    // A table of overlapping attributes, looked for by moving one attribute's rates into a range after another's. Cells
    // without decisions stay at 0: half a decision is promised only for each of the others.
    bool near_ranges() {
        std::vector<Whole> low, high;
        for (const Family& family : families_) {
            Whole least = UNITS, most = 0;  // ends that leave room for a range with every group within reach of it
            for (std::size_t k = family.first; k < family.last; ++k) {
                if (groups_[k].decisions == 0) continue;
                least = std::min(least, groups_[k].highest());
                most = std::max(most, groups_[k].lowest());
            }
            const Whole highest = family.highest(least);
            if (highest < most) return false;
            high.push_back(std::min((most + highest) / 2, UNITS));
            low.push_back(family.lowest(high.back()));
        }
        std::fill(found_.begin(), found_.end(), 0);
        for (int sweep = 0; sweep <= SWEEPS; ++sweep) {
            bool fair = true;
            for (std::size_t f = 0; f < families_.size(); ++f) fair = sweep_into(f, low[f], high[f]) && fair;
            if (fair) return true;
        }
        return false;
    }

    // Move the rates of one attribute's groups into a range, each cell by its share of the room that it has left.
    // Whether they were within it already.
    bool sweep_into(std::size_t f, Whole low, Whole high) {
        struct Move {
            Whole total = 0;              // of the group's table, then what it is to be moved by
            double up = 0.0, down = 0.0;  // room left in its cells
        };
        const Family& family = families_[f];
        std::vector<Move> moves(family.last - family.first);
        for (std::size_t c = 0; c < cells_.size(); ++c) {
            if (cells_[c].decisions == 0) continue;
            Move& move = moves[group(c, f) - family.first];
            move.total += found_[c];
            move.up += static_cast<double>(HALF - found_[c]);
            move.down += static_cast<double>(HALF + found_[c]);
        }
        bool fair = true;
        for (std::size_t k = family.first; k < family.last; ++k) {
            Move& move = moves[k - family.first];
            const Whole total = move.total + UNITS * groups_[k].yes;
            const Whole bottom = low * groups_[k].decisions, top = high * groups_[k].decisions;
            const bool inside = bottom <= total && total <= top;
            fair = fair && inside;
            const Whole inwards = (top - bottom) / 64;  // beyond the end, or the sweeps would only ever approach it
            move.total = inside ? 0 : std::clamp(total, bottom + inwards, top - inwards) - total;
        }
        for (std::size_t c = 0; c < cells_.size(); ++c) {
            if (cells_[c].decisions == 0) continue;
            const Move& move = moves[group(c, f) - family.first];
            const double room = move.total > 0 ? static_cast<double>(HALF - found_[c]) / std::max(move.up, 1.0)
                                               : static_cast<double>(HALF + found_[c]) / std::max(move.down, 1.0);
            const auto share = static_cast<Whole>(static_cast<double>(move.total) * room);
            found_[c] = std::clamp(found_[c] + share, -HALF, HALF);
        }
        return fair;
    }

    std::span<Cell> state_;
    std::span<const Whole> group_;  // (cells, families)
    std::vector<Family> families_;
    std::vector<Counts> cells_, groups_;
    Counts all_;
    std::vector<Whole> table_, found_;  // by cell, in units: what the fair table is off the counts, kept and tried
};

// Decide a batch, in order. group: (G, F) the group of each cell in each family; is_ratio, limit: by family.
// Returns the decisions, how many are not as wanted, and the level of the table.
nb::tuple decide(const MutableMatrix<double>& cells, const Int32s& cell, const Vector<bool>& wanted,
                 const Int64Matrix& group, const Int64s& first, const Vector<bool>& is_ratio, const Int64s& limit,
                 Whole level) {
    std::vector<Family> families;
    for (std::size_t f = 0; f < limit.size(); ++f) {
        families.push_back({static_cast<std::size_t>(first.data()[f]), static_cast<std::size_t>(first.data()[f + 1]),
                            is_ratio.data()[f], limit.data()[f]});
    }
    if (families.empty()) throw std::invalid_argument("decide: no families");
    DecisionLedger ledger(as<Cell>(cells), entries(group), std::move(families), level);
    std::vector<std::uint8_t> decided(cell.size());
    std::int64_t overruled = 0;
    for (std::size_t i = 0; i < cell.size(); ++i) {
        decided[i] = ledger.decide(cell.data()[i], wanted.data()[i]);
        overruled += (decided[i] != 0) != wanted.data()[i];
    }
    ledger.keep();
    return nb::make_tuple(to_numpy(std::move(decided)), overruled, ledger.level);
}

}  // namespace fairlayer::ledger

void fairlayer::bind_decision_ledger(nb::module_& m) {
    m.def("decide", &ledger::decide, array("cells"), array("cell"), array("wanted"), array("group"), array("first"),
          array("is_ratio"), array("limit"), nb::arg("level"));
}
