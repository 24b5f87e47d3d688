// Cells: one number for each combination of the labels in several columns of integers.
//
// Where there are few combinations, as a rule, the number is computed from the labels, and empty combinations are
// simply empty cells. Otherwise those that occur are numbered, in their order.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <numeric>
#include <tuple>

#include "rows.hpp"

namespace fairlayer {

namespace {

constexpr std::int64_t most_codes = std::int64_t(1) << 40;

// Number codes in the order of their size; `one` becomes a sample that has each.
std::vector<std::int32_t> number_codes(std::span<const std::int64_t> code, std::vector<std::int64_t>& one) {
    const std::size_t n = code.size();
    std::size_t size = 16;
    while (size < 2 * n) size *= 2;
    std::vector<std::int32_t> slot(size, -1), index(n);
    one.clear();
    for (std::size_t i = 0; i < n; ++i) {
        std::size_t at = (std::uint64_t(code[i]) * 0x9E3779B97F4A7C15u >> 20) & (size - 1);
        while (slot[at] >= 0 && code[one[slot[at]]] != code[i]) at = (at + 1) & (size - 1);
        if (slot[at] < 0) {
            slot[at] = std::int32_t(one.size());
            one.push_back(std::int64_t(i));
        }
        index[i] = slot[at];
    }
    std::vector<std::int32_t> order(one.size()), place(one.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return code[one[a]] < code[one[b]]; });
    std::vector<std::int64_t> sorted(one.size());
    for (std::size_t k = 0; k < order.size(); ++k) {
        place[order[k]] = std::int32_t(k);
        sorted[k] = one[order[k]];
    }
    one = std::move(sorted);
    for (auto& cell : index) cell = place[cell];
    return index;
}

using Column = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::device::cpu>;

// The least and the greatest of a column, n > 0. Zeros and ones, the usual labels, take neither comparison nor branch.
std::pair<std::int64_t, std::int64_t> range_of(const Column& column) {
    constexpr std::size_t lanes = 4;  // so that no comparison waits for the one before
    const std::size_t n = column.shape(0);
    const std::int64_t* values = column.data();
    const std::int64_t stride = column.stride(0);
    std::int64_t all = values[0], any = values[0];
    for (std::size_t i = 1; i < n; ++i) {
        all &= values[i * stride];
        any |= values[i * stride];
    }
    if (any == 0 || any == 1) return {all, any};
    std::int64_t least[lanes], greatest[lanes];
    std::fill_n(least, lanes, values[0]);
    std::fill_n(greatest, lanes, values[0]);
    const auto look = [&](std::size_t lane, std::int64_t value) {
        least[lane] = std::min(least[lane], value);
        greatest[lane] = std::max(greatest[lane], value);
    };
    std::size_t i = 0;
    for (; i + lanes <= n; i += lanes) {
        for (std::size_t lane = 0; lane < lanes; ++lane) look(lane, values[(i + lane) * stride]);
    }
    for (; i < n; ++i) look(0, values[i * stride]);
    return {*std::min_element(least, least + lanes), *std::max_element(greatest, greatest + lanes)};
}

struct Cells {
    std::vector<std::int32_t> cell;   // (n,)
    Numbers count;                    // (G,)
    std::vector<std::int64_t> least;  // of each column
    std::vector<std::int64_t> width;  // how many integers it ranges over
    std::vector<std::int64_t> one;    // (G,) a sample of each cell; empty where cells are all combinations
};

// columns: (n,) each, n > 0; labels: how many each column has, numbered from 0, or 0 where its integers are the labels;
// most: combinations up to which all of them are cells.
Cells number_cells(const std::vector<Column>& columns, const std::vector<std::int64_t>& labels, std::int64_t most) {
    const std::size_t n = columns.front().shape(0);
    Cells found;
    double size = 1.0;
    for (std::size_t j = 0; j < columns.size(); ++j) {
        std::int64_t least = 0, greatest = labels[j] - 1;
        if (labels[j] == 0) std::tie(least, greatest) = range_of(columns[j]);
        found.least.push_back(least);
        found.width.push_back(std::int64_t(std::uint64_t(greatest) - std::uint64_t(least) + 1));
        size *= double(greatest) - double(least) + 1.0;
    }
    if (size <= double(most)) {
        found.cell.assign(n, 0);
        for (std::size_t j = 0; j < columns.size(); ++j) {
            const std::int64_t* values = columns[j].data();
            const std::int64_t stride = columns[j].stride(0), least = found.least[j], width = found.width[j];
            for (std::size_t i = 0; i < n; ++i) {
                found.cell[i] = std::int32_t(found.cell[i] * width + (values[i * stride] - least));
            }
        }
        found.count.assign(std::size_t(size), 0.0);
    } else {
        std::vector<std::int64_t> code(n, 0);
        double codes = 1.0;
        for (std::size_t j = 0; j < columns.size(); ++j) {
            const std::int64_t* values = columns[j].data();
            const std::int64_t stride = columns[j].stride(0);
            std::vector<std::int64_t> digit(n);
            double width = double(found.width[j]);
            for (std::size_t i = 0; i < n; ++i) digit[i] = values[i * stride];
            const auto renumber = [&](std::vector<std::int64_t>& numbers) {
                const auto index = number_codes(numbers, found.one);
                std::copy(index.begin(), index.end(), numbers.begin());
                return double(found.one.size());
            };
            if (found.width[j] <= 0 || width > double(most_codes)) {  // too wide a range to compute with
                width = renumber(digit);
            } else {
                for (auto& one : digit) one -= found.least[j];
            }
            if (codes * width > double(most_codes)) codes = renumber(code);
            if (codes * width > double(most_codes)) width = renumber(digit);
            for (std::size_t i = 0; i < n; ++i) code[i] = code[i] * std::int64_t(width) + digit[i];
            codes *= width;
        }
        found.cell = number_codes(code, found.one);
        found.count.assign(found.one.size(), 0.0);
    }
    // Four counters in turn, so that samples of one cell need not wait for each other.
    const std::size_t G = found.count.size();
    std::vector<std::int32_t> bank(4 * G, 0);
    for (std::size_t i = 0; i < n; ++i) ++bank[(i & 3) * G + found.cell[i]];
    for (std::size_t c = 0; c < G; ++c) {
        found.count[c] = double(bank[c]) + double(bank[G + c]) + double(bank[2 * G + c]) + double(bank[3 * G + c]);
    }
    return found;
}

// Number the rows of a table as they come: the number of each, and where each number stands first.
nb::tuple number_words(const Matrix<std::uint32_t>& letters) {
    const std::size_t n = letters.shape(0), width = letters.shape(1);
    const std::uint32_t* table = letters.data();
    std::vector<std::int64_t> code(n), first;
    std::vector<std::uint64_t> key;
    std::size_t size = 64;
    std::vector<std::int64_t> slot(size, -1);
    const auto same = [&](std::size_t i, std::size_t k) {
        return std::equal(table + i * width, table + (i + 1) * width, table + k * width);
    };
    for (std::size_t i = 0; i < n; ++i) {
        std::uint64_t h = 14695981039346656037u;
        for (std::size_t j = 0; j < width; ++j) h = (h ^ table[i * width + j]) * 1099511628211u;
        std::size_t at = (h >> 32) & (size - 1);
        while (slot[at] >= 0 && !(key[slot[at]] == h && same(i, first[slot[at]]))) at = (at + 1) & (size - 1);
        if (slot[at] < 0) {
            slot[at] = std::int64_t(first.size());
            first.push_back(std::int64_t(i));
            key.push_back(h);
        }
        code[i] = slot[at];
        if (2 * first.size() > size) {  // make room
            size *= 4;
            slot.assign(size, -1);
            for (std::size_t k = 0; k < first.size(); ++k) {
                std::size_t to = (key[k] >> 32) & (size - 1);
                while (slot[to] >= 0) to = (to + 1) & (size - 1);
                slot[to] = std::int64_t(k);
            }
        }
    }
    return nb::make_tuple(to_numpy(std::move(code)), to_numpy(std::move(first)));
}

// Entries of M that make means of cell sums, and which statistics have any weight; none where weights are not whole
// numbers, and their sums not exact.
std::optional<nb::tuple> means_of_counts(const Int64s& start, const Int64s& statistic, const Doubles& weight,
                                         std::size_t statistics) {
    for (const double w : entries(weight)) {
        if (w != std::floor(w) || w > 0x1p40) return std::nullopt;
    }
    Numbers total(statistics, 0.0), value(statistic.size());
    for (std::size_t c = 0; c < weight.size(); ++c) {
        for (auto e = start.data()[c]; e < start.data()[c + 1]; ++e) total[statistic.data()[e]] += weight.data()[c];
    }
    for (std::size_t e = 0; e < value.size(); ++e) value[e] = 1.0 / std::max(total[statistic.data()[e]], 1.0);
    bool* present = new bool[statistics];
    for (std::size_t k = 0; k < statistics; ++k) present[k] = total[k] > 0.0;
    nb::capsule owner(present, [](void* memory) noexcept { delete[] static_cast<bool*>(memory); });
    return nb::make_tuple(to_numpy(std::move(value)), NewVector<bool>(present, {statistics}, owner));
}

}  // namespace

void bind_cells(nb::module_& m) {
    m.def(
        "number_cells",
        [](const std::vector<Column>& columns, const std::vector<std::int64_t>& labels, std::int64_t most) {
            Cells found = number_cells(columns, labels, most);
            return nb::make_tuple(to_numpy(std::move(found.cell)), to_numpy(std::move(found.count)), found.least,
                                  found.width, to_numpy(std::move(found.one)));
        },
        nb::arg("columns"), nb::arg("labels"), nb::arg("most"),
        "Number the combinations of labels: cell of each sample, samples of each cell, and what the columns range "
        "over.");
    m.def("number_words", &number_words, array("letters"),
          "Number the rows of a table as they come; the number of each, and where each number stands first.");
    m.def("means_of_counts", &means_of_counts, array("start"), array("statistic"), array("weight"),
          nb::arg("statistics"), "Entries that make means of cell sums, and which statistics have any weight.");
}

}  // namespace fairlayer
