// The ledger of a stream: the pooled rows of everything emitted so far, as functions of the next batch.
//
// After the next batch the pooled mean of a group is (what it was emitted before + what it is emitted now) / (counts of
// both): affine in the batch. So a stream is the same projection, for any batch size down to 1. For mean parity it is
// always feasible: emitting the overall mean for every sample cannot widen any gap, whatever arrives.
#include "ledger.hpp"

#include "rows.hpp"

namespace fairlayer::ledger {

// The statistics (means of groups) that each cell counts towards: those of cell c are in start[c] to start[c + 1].
struct Membership {
    std::span<const std::int64_t> start, statistic;
    std::span<const bool> residual;  // by statistic: of outputs less targets

    std::span<const std::int64_t> of(std::size_t cell) const {
        return statistic.subspan(start[cell], start[cell + 1] - start[cell]);
    }
};

// What a statistic has so far.
struct Statistic {
    double weight = 0.0;
    TwoSum sum{};
    double error = 0.0;  // bound on that of the sum

    void add(const TwoSum& more, double more_error, double sign) {
        sum.add(sign * more.high);
        sum.low += sign * more.low;
        error += more_error + unit * std::abs(sum.low);
    }
    // The mean, rounded once: outputs that are all alike are their mean.
    double mean() const {
        if (weight == 0.0) return 0.0;
        const double near = sum.value() / weight, product = near * weight;
        const double more = (((sum.high - product) + sum.low) - std::fma(near, weight, -product)) / weight;
        return std::abs(more) < infinity ? near + more : near;  // of huge numbers there is no product
    }
};

std::vector<Statistic> pool(const Membership& membership, std::span<const Cell> cells) {
    std::vector<Statistic> pooled(membership.residual.size());
    for (std::size_t c = 0; c < cells.size(); ++c) {
        for (const std::int64_t k : membership.of(c)) {
            pooled[k].weight += cells[c].count;
            pooled[k].add(cells[c].total, cells[c].total_error, 1.0);
            if (membership.residual[k]) pooled[k].add(cells[c].target, cells[c].target_error, -1.0);
        }
    }
    return pooled;
}

// The cells of a batch, numbered in order of appearance.
struct BatchCells {
    std::vector<std::int64_t> cell;   // which they are
    std::vector<std::int32_t> local;  // of each sample, its place among them
    std::vector<Cell> sums;           // counts, and sums of targets

    BatchCells(std::span<const std::int32_t> cells, std::span<const double> targets, std::size_t size)
        : local(cells.size()) {
        std::vector<std::int32_t> place(size, -1);
        for (std::size_t i = 0; i < cells.size(); ++i) {
            std::int32_t& at = place[cells[i]];
            if (at < 0) {
                at = static_cast<std::int32_t>(cell.size());
                cell.push_back(cells[i]);
                sums.push_back({});
            }
            local[i] = at;
            sums[at].count += 1.0;
            if (!targets.empty()) sums[at].observe(targets[i]);
        }
    }
};

// Rows after a batch: statistic k is sum over cells of value * (sum of the cell's outputs) - offset.
struct PooledRows {
    std::vector<double> value;  // by statistic; all cells of a statistic count alike
    std::vector<double> offset;
    std::vector<std::uint8_t> present;
    std::vector<double> lower, upper;  // by family
};

// The rows of `pooled` statistics after a batch. Rows that the batch cannot move are left out; where some of a family
// already exceed its bound, the bound is theirs. Bounds are tightened by what rounding may have done to the sums.
PooledRows rows_after(std::vector<Statistic> pooled, const Membership& membership, std::span<const Family> families,
                      const BatchCells& batch) {
    const std::size_t K = pooled.size();
    PooledRows rows{Numbers(K), Numbers(K), std::vector<std::uint8_t>(K), {}, {}};
    std::vector<bool> here(K);
    for (std::size_t a = 0; a < batch.cell.size(); ++a) {
        for (const std::int64_t k : membership.of(batch.cell[a])) {
            here[k] = true;
            pooled[k].weight += batch.sums[a].count;
            if (membership.residual[k]) pooled[k].add(batch.sums[a].target, batch.sums[a].target_error, -1.0);
        }
    }
    for (const Family& family : families) {
        bool moved = false;
        double lowest = infinity, highest = -infinity, off = 0.0;
        for (int k = family.begin; k < family.end; ++k) {
            moved = moved || here[k];
            const Statistic& so_far = pooled[k];
            if (so_far.weight == 0.0) continue;
            rows.value[k] = 1.0 / so_far.weight;
            rows.offset[k] = -so_far.sum.value() / so_far.weight;
            off = std::max(off, so_far.error / so_far.weight + 4.0 * unit * std::abs(rows.offset[k]));
            if (!here[k]) {
                lowest = std::min(lowest, -rows.offset[k]);
                highest = std::max(highest, -rows.offset[k]);
            }
        }
        for (int k = family.begin; k < family.end; ++k) {
            rows.present[k] = moved && pooled[k].weight > 0.0;
        }
        double lower = family.lower, upper = family.upper;
        if (family.kind != Kind::each) off *= 2.0;
        off = std::min(off, 0.25 * (upper - lower));
        upper -= off;
        lower += off;
        if (family.kind == Kind::difference && highest - lowest > upper) {
            upper = (highest - lowest) * (1.0 + 8.0 * unit);
            lower = -upper;
        }
        if (family.kind == Kind::ratio && family.ratio * highest - lowest > upper) {
            upper = family.ratio * highest - lowest + 8.0 * unit * (std::abs(highest) + std::abs(lowest));
        }
        rows.lower.push_back(lower);
        rows.upper.push_back(upper);
    }
    return rows;
}

// The pooled rows after a batch; each_batch: followed by those of the batch alone, whose entries follow within a cell.
nb::tuple pooled_rows(const MutableMatrix<double>& cells, const Int32s& cell, const Doubles& targets,
                      const Int64s& start, const Int64s& statistic, const Vector<bool>& residual, const Int64s& first,
                      const Int64s& kind, const Doubles& ratio, const Doubles& lower, const Doubles& upper,
                      bool each_batch) {
    const Membership membership{entries(start), entries(statistic), entries(residual)};
    std::vector<Family> families;
    for (std::size_t f = 0; f < kind.size(); ++f) {
        families.push_back({int(first.data()[f]), int(first.data()[f + 1]), Kind(int(kind.data()[f])), ratio.data()[f],
                            lower.data()[f], upper.data()[f]});
    }
    const std::span<const Cell> all = as<Cell>(cells);
    BatchCells batch(entries(cell), entries(targets), all.size());
    const std::size_t K = membership.residual.size();
    PooledRows rows = rows_after(pool(membership, all), membership, families, batch);
    if (each_batch) {
        const PooledRows own = rows_after(std::vector<Statistic>(K), membership, families, batch);
        const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
        append(rows.value, own.value);
        append(rows.offset, own.offset);
        append(rows.present, own.present);
        append(rows.lower, own.lower);
        append(rows.upper, own.upper);
    }
    std::vector<std::int64_t> entry_start{0}, entry_statistic;
    std::vector<double> value;
    for (std::size_t a = 0; a < batch.cell.size(); ++a) {
        for (std::size_t block = 0; block < rows.offset.size(); block += K) {
            for (const std::int64_t k : membership.of(batch.cell[a])) {
                entry_statistic.push_back(k + static_cast<std::int64_t>(block));
                value.push_back(rows.value[k + block]);
            }
        }
        entry_start.push_back(static_cast<std::int64_t>(entry_statistic.size()));
    }
    return nb::make_tuple(to_numpy(std::move(batch.local)), to_numpy(std::move(entry_start)),
                          to_numpy(std::move(entry_statistic)), to_numpy(std::move(value)),
                          to_numpy(std::move(rows.offset)), to_numpy(std::move(rows.present)),
                          to_numpy(std::move(rows.lower)), to_numpy(std::move(rows.upper)));
}

// Weight, sum and mean of each statistic now.
nb::tuple pooled_means(const MutableMatrix<double>& cells, const Int64s& start, const Int64s& statistic,
                       const Vector<bool>& residual) {
    const auto pooled = pool({entries(start), entries(statistic), entries(residual)}, as<Cell>(cells));
    std::vector<double> weight, sum, mean;
    for (const Statistic& one : pooled) {
        weight.push_back(one.weight);
        sum.push_back(one.sum.value());
        mean.push_back(one.mean());
    }
    return nb::make_tuple(to_numpy(std::move(weight)), to_numpy(std::move(sum)), to_numpy(std::move(mean)));
}

// How closely what was emitted follows the raw outputs: running means, squared deviations and their products.
struct Agreement {
    double count, raw, emitted, raw_deviations, emitted_deviations, products;

    void add(double before, double after) {
        count += 1.0;
        const double step = before - raw, other = after - emitted;
        raw += step / count;
        emitted += other / count;
        raw_deviations += step * (before - raw);
        emitted_deviations += other * (after - emitted);
        products += step * (after - emitted);
    }
};

// Enter a batch that was emitted. threshold: outputs at or above it count as 1, others as 0; NaN to count outputs
// themselves. phase: the row of `agreement` that it belongs to. width: outputs of each sample, which follow each other;
// its change is that of the output that changed most. Returns samples changed, and the sum, the sum of squares and the
// largest of the changes.
nb::tuple enter_batch(const MutableMatrix<double>& cells, const Int32s& cell, const Doubles& raw,
                      const Doubles& emitted, const Doubles& targets, std::size_t width, double threshold,
                      const MutableMatrix<double>& agreement, std::size_t phase) {
    const std::span<Cell> all = as<Cell>(cells);
    const auto index = entries(cell);
    const auto before = entries(raw), after = entries(emitted), known = entries(targets);
    const auto counted = [=](double y) { return std::isnan(threshold) ? y : y >= threshold ? 1.0 : 0.0; };
    Agreement& follows = as<Agreement>(agreement)[phase];
    double changed = 0.0, change = 0.0, square = 0.0, largest = 0.0, most = 0.0;
    for (std::size_t i = 0; i < index.size(); ++i) {
        Cell& own = all[index[i]];
        own.emit(counted(after[i]));
        if (!known.empty()) own.observe(known[i]);
        own.raw += counted(before[i]);
        follows.add(counted(before[i]), counted(after[i]));
        most = std::max(most, std::abs(after[i] - before[i]));
        if ((i + 1) % width == 0) {
            changed += most > 0.0 ? 1.0 : 0.0;
            change += most;
            square += most * most;
            largest = std::max(largest, most);
            most = 0.0;
        }
    }
    return nb::make_tuple(changed, change, square, largest);
}

// Move decisions whose targets have arrived from one cell to another.
void move_decisions(const MutableMatrix<double>& cells, const Int32s& from, const Int32s& to, const Doubles& raw,
                    const Doubles& emitted, const Doubles& targets) {
    const std::span<Cell> all = as<Cell>(cells);
    for (std::size_t i = 0; i < from.size(); ++i) {
        Cell &old = all[from.data()[i]], &now = all[to.data()[i]];
        const double y = emitted.data()[i], z = raw.data()[i];
        old.count -= 1.0;
        old.raw -= z;
        old.square -= y * y;
        old.total.add(-y);
        old.total_error += unit * std::abs(old.total.low);
        now.emit(y);
        now.raw += z;
        now.observe(targets.data()[i]);
    }
}

// Raw outputs into the rings of their cells, and into the moments of their latest blocks.
void learn_outputs(const MutableMatrix<double>& past, const MutableMatrix<double>& ring, const Int32s& cell,
                   const Doubles& raw) {
    const std::span<Past> all = as<Past>(past);
    const std::size_t size = ring.shape(1);
    for (std::size_t i = 0; i < cell.size(); ++i) {
        const std::size_t c = cell.data()[i];
        ring.data()[c * size + static_cast<std::size_t>(all[c].known) % size] = raw.data()[i];
        all[c].known += 1.0;
        all[c].latest.add(raw.data()[i]);
    }
}

// Compare each cell's latest block with what came before it; merge it if it is full. True after a drift: then what came
// before is forgotten. block: samples after which one is looked at first; errors: standard errors that make a drift.
bool find_drift(const MutableMatrix<double>& past, double block, double errors) {
    bool drifted = false;
    for (Past& cell : as<Past>(past)) {
        Moments &before = cell.before, &latest = cell.latest;
        if (latest.count < std::max(cell.next_look, 1.0)) continue;
        if (before.count >= block) {
            const double variance = (before.deviations + latest.deviations) / (before.count + latest.count);
            const double error = std::sqrt(variance * (1.0 / before.count + 1.0 / latest.count));
            if (std::abs(latest.mean - before.mean) > errors * error) {
                before = {};
                drifted = true;
            }
        }
        cell.next_look = 2.0 * latest.count;
        if (latest.count >= 0.125 * before.count) {
            before.merge(latest);
            latest = {};
            cell.next_look = block;
        }
    }
    return drifted;
}

}  // namespace fairlayer::ledger

namespace fairlayer {

void bind_ledger(nb::module_& m) {
    using namespace ledger;
    m.def("pooled_rows", &pooled_rows, array("cells"), array("cell"), array("targets"), array("start"),
          array("statistic"), array("residual"), array("first"), array("kind"), array("ratio"), array("lower"),
          array("upper"), nb::arg("each_batch"));
    m.def("pooled_means", &pooled_means, array("cells"), array("start"), array("statistic"), array("residual"));
    m.def("enter_batch", &enter_batch, array("cells"), array("cell"), array("raw"), array("emitted"), array("targets"),
          nb::arg("width"), nb::arg("threshold"), array("agreement"), nb::arg("phase"));
    m.def("move_decisions", &move_decisions, array("cells"), array("old"), array("new"), array("raw"), array("emitted"),
          array("targets"));
    m.def("learn_outputs", &learn_outputs, array("past"), array("ring"), array("cell"), array("raw"));
    m.def("find_drift", &find_drift, array("past"), nb::arg("block"), nb::arg("errors"));
}

}  // namespace fairlayer
