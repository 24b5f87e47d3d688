// The projection of a batch in memory, and its derivative, as Python calls them.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/unique_ptr.h>

#include "bindings.hpp"
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
        double largest, total = 0.0;
        for (const double w : entries(cell_weight)) total += w;
        if (!all_finite(batch.z, largest)) {
            end = End::not_finite;
        } else if (!describe<T, R>(batch, entries(cell_weight), facts)) {
            end = End::outside;
        } else if (!(largest * std::max(total, 1.0) <= 1e300)) {  // the rest of the range is left to differences
            end = End::too_large;
        }
        if (end != End::solved) return;
        Settings settings;
        settings.rounding = exact ? Float<T>::rounding : 0.0;
        if (start) settings.start = entries(*start);
        const Rows view_of_rows = rows_.view();
        const LongWork work(batch.size());
        SamplePasses<T, R> passes(batch, facts.count, {out, batch.size()}, side);
        solved = solve(view_of_rows, facts, passes, settings);
        end = End(int(solved.outcome));
    }

    Back pull_back(const AnyArray& gradient, bool details) const override {
        const std::size_t n = cell_.size();
        T* out;
        Back back{new_array<T>(n, out), {}, nb::none()};
        double* raw = nullptr;
        if (details) back.raw = new_array<double>(n, raw);
        const LongWork work(n);
        back.v = fairlayer::pull_back<T, R>(view(), rows_.view(), solved, side, as_span<T>(gradient), out, raw);
        return back;
    }

  private:
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
        .def("pull_back", [](const Projection& p, const AnyArray& gradient) { return p.pull_back(gradient, false).z; })
        .def("pull_back_all", [](const Projection& p, const AnyArray& gradient) {
            Projection::Back back = p.pull_back(gradient, true);
            return nb::make_tuple(back.z, to_numpy(std::move(back.v)), back.raw);
        });
    m.def("project", &project, nb::arg("dtype"), nb::arg("discrepancy"), nb::arg("z").noconvert(),
          nb::arg("cell").noconvert(), nb::arg("weights").noconvert(), nb::arg("count").noconvert(),
          nb::arg("cell_weight").noconvert(), nb::arg("lo").noconvert(), nb::arg("hi").noconvert(), nb::arg("rows"),
          nb::arg("start").none(), nb::arg("exact"));
}

}  // namespace fairlayer
