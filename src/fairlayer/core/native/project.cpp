// The projection of a batch in memory, and its derivative, as Python calls them.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/unique_ptr.h>

#include "projection.hpp"
#include "samples.hpp"

namespace fairlayer {

namespace {

enum class Discrepancy { squared, entropy, logits, kl };

template <class T, class R>
class BatchProjection final : public Projection {
  public:
    BatchProjection(const AnyArray& z, const Int32s& cell, const Doubles& weights, const Doubles& count,
                    const Doubles& cell_weight, const Doubles& lo, const Doubles& hi, const nb::tuple& rows,
                    const std::optional<Doubles>& start, bool exact)
        : z_(z), cell_(cell), weights_(weights), lo_(lo), hi_(hi), rows_(rows) {
        const Batch<T> batch = view();
        T* out;
        value = new_array<T>(batch.size(), out);
        side.resize(batch.size());
        CellFacts facts;
        facts.count = entries(count);
        const Range range = range_of(batch.z);
        if (!range.finite) {
            end = End::not_finite;
        } else if (!describe<T, R>(batch, range, entries(cell_weight), facts)) {
            end = End::outside;
        } else if (!range.fits(entries(cell_weight))) {
            end = End::too_large;
        }
        if (end != End::solved) return;
        Settings settings;
        settings.rounding = exact ? Float<T>::rounding : 0.0;
        if (start) settings.start = entries(*start);
        const Rows view_of_rows = rows_.view();
        const LongWork work(batch.size());
        Numbers guess;
        const std::size_t least = std::max(very_long_, many_ * every_ * std::size_t(view_of_rows.cells()));
        if (!start && batch.size() > least) guess = solve_some(batch, facts, view_of_rows);
        settings.guess = guess;
        SamplePasses<T, R> passes(batch, facts.count, {out, batch.size()}, side);
        solved = solve(view_of_rows, facts, passes, settings);
        end = End(int(solved.outcome));
    }

    nb::object pull_back(const AnyArray& gradient) const override {
        const std::size_t n = cell_.size();
        T* out;
        nb::object found = new_array<T>(n, out);
        const LongWork work(n);
        fairlayer::pull_back<T, R>(view(), rows_.view(), solved, side, as_span<T>(gradient), out);
        return found;
    }

  private:
    static constexpr std::size_t very_long_ = 16384, every_ = 32, many_ = 16;  // many_: samples of a cell that tell

    // The multipliers of a few samples of a very long batch, each with the weight of those it stands for: begun with
    // them, the whole batch takes half as many passes. None where they are not found.
    static Numbers solve_some(const Batch<T>& batch, const CellFacts& facts, const Rows& rows) {
        std::vector<T> z;
        std::vector<std::int32_t> cell;
        Numbers weight, lo, hi, count(facts.count.size(), 0.0);
        for (std::size_t i = every_ / 2; i < batch.size(); i += every_) {
            z.push_back(batch.z[i]);
            cell.push_back(batch.cell[i]);
            weight.push_back(batch.weight_of(i));
            lo.push_back(batch.lo_of(i));
            hi.push_back(batch.hi_of(i));
            ++count[batch.cell[i]];
        }
        for (std::size_t j = 0; j < z.size(); ++j) weight[j] *= facts.count[cell[j]] / count[cell[j]];
        const Batch<T> some{z, cell, weight, lo, hi};
        CellFacts described = facts;
        described.count = count;
        std::vector<T> out(z.size());
        std::vector<std::int8_t> side(z.size());
        SamplePasses<T, R> passes(some, count, out, side);
        Settings settings;
        settings.rounding = 0.0;
        const Solved found = solve(rows, described, passes, settings);
        return found.outcome == Outcome::solved ? found.nu : Numbers();
    }

    Batch<T> view() const { return {as_span<T>(z_), entries(cell_), entries(weights_), entries(lo_), entries(hi_)}; }

    AnyArray z_;
    Int32s cell_;
    Doubles weights_, lo_, hi_;
    PythonRows rows_;
};

std::unique_ptr<Projection> project(int dtype, int discrepancy, const AnyArray& z, const Int32s& cell,
                                    const Doubles& weights, const Doubles& count, const Doubles& cell_weight,
                                    const Doubles& lo, const Doubles& hi, const nb::tuple& rows,
                                    const std::optional<Doubles>& start, bool exact) {
    return with_dtype(Dtype(dtype), [&]<class T>() -> std::unique_ptr<Projection> {
        const auto make = [&]<class R>() -> std::unique_ptr<Projection> {
            return std::make_unique<BatchProjection<T, R>>(z, cell, weights, count, cell_weight, lo, hi, rows, start,
                                                           exact);
        };
        switch (Discrepancy(discrepancy)) {
            case Discrepancy::entropy:
                return make.template operator()<Entropy>();
            case Discrepancy::logits:
                return make.template operator()<Logits>();
            case Discrepancy::kl:
                return make.template operator()<GeneralizedKl>();
            default:
                return make.template operator()<Squared>();
        }
    });
}

}  // namespace

void bind_project(nb::module_& m) {
    nb::class_<Projection>(m, "Projection")
        .def_ro("value", &Projection::value)
        .def_prop_ro("end", [](const Projection& p) { return int(p.end); })
        .def_prop_ro("holds", &Projection::holds)
        .def_prop_ro("tight", [](const Projection& p) { return p.solved.tight; })
        .def_prop_ro("nu", [](const Projection& p) { return seen(p.solved.nu); })
        .def_prop_ro("shift", [](const Projection& p) { return seen(p.solved.shift); })
        .def_prop_ro("slopes", [](const Projection& p) { return seen(p.solved.slopes); })
        .def_prop_ro("missed", [](const Projection& p) { return seen(p.solved.missed); })
        .def_prop_ro("statistics", [](const Projection& p) { return seen(p.solved.statistics); })
        .def_prop_ro("absolute", [](const Projection& p) { return seen(p.solved.absolute); })
        .def_prop_ro("side", [](const Projection& p) { return seen(p.side); })
        .def("pull_back", &Projection::pull_back);
    m.attr("MOST_SUM") = most_sum;
    m.def("project", &project, nb::arg("dtype"), nb::arg("discrepancy"), array("z"), array("cell"), array("weights"),
          array("count"), array("cell_weight"), array("lo"), array("hi"), nb::arg("rows"), nb::arg("start").none(),
          nb::arg("exact"));
}

}  // namespace fairlayer
