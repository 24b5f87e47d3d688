// The projection of a batch in memory, and its derivative, as Python calls them.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/unique_ptr.h>

#include "bindings.hpp"
#include "samples.hpp"

namespace fairlayer {

namespace {

enum class Dtype { float32, float64, float16, bfloat16 };
enum class Discrepancy { squared, entropy, logits, kl };

using AnyVector = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
std::span<const T> as_span(const AnyVector& values) {
    return {static_cast<const T*>(values.data()), values.size()};
}

template <class T>
nb::object new_array(std::size_t n, T*& data) {
    // Halves cross the border as their bits: NumPy has no bfloat16.
    using Shown = std::conditional_t<sizeof(T) == 2, std::uint16_t, T>;
    data = new T[n];
    nb::capsule owner(data, [](void* memory) noexcept { delete[] static_cast<T*>(memory); });
    return nb::cast(nb::ndarray<nb::numpy, Shown, nb::ndim<1>>(data, {n}, owner));
}

// How a solve ended, or why it did not begin.
enum class End { solved, infeasible, stalled, not_finite, outside, too_large };

// A projected batch: the output, what is known of it, and all that its derivative needs.
class Projection {
   public:
    virtual ~Projection() = default;

    struct Back {
        nb::object z;   // gradient with respect to z
        Numbers v;      // with respect to the offsets of the statistics
        nb::object raw;  // before it is known which outputs rest on a bound, in float64; none unless asked for
    };
    virtual Back pull_back(const AnyVector& gradient, bool details) const = 0;

    End end = End::solved;
    nb::object value;
    Solved solved;
    std::vector<std::int8_t> side;  // of each output: -1 on its lower bound, 1 on its upper one, 0 between them
};

template <class T, class R>
class ProjectionOf final : public Projection {
   public:
    ProjectionOf(const AnyVector& z, const Int32s& cell, const Doubles& weights, const Doubles& count,
                 const Doubles& cell_weight, const Doubles& lo, const Doubles& hi, const nb::tuple& rows,
                 const std::optional<Doubles>& start, bool exact)
        : z_(z), cell_(cell), weights_(weights), lo_(lo), hi_(hi), rows_(rows) {
        const Batch<T> batch = view();
        T* out;
        value = new_array<T>(batch.size(), out);
        side.resize(batch.size());
        double largest = 0.0, total = 0.0;
        bool finite = true;
        for (const T& one : batch.z) {
            const double size = std::abs(double(one));
            largest = std::max(largest, size);
            finite = finite && size < infinity;
        }
        for (const double w : entries(cell_weight)) total += w;
        CellFacts facts;
        facts.count = entries(count);
        if (!finite) {
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
        Work work(batch.size());
        SamplePasses<T, R> passes(batch, facts.count, {out, batch.size()}, side);
        solved = solve(view_of_rows, facts, passes, settings);
        end = End(int(solved.outcome));
    }

    Back pull_back(const AnyVector& gradient, bool details) const override {
        const Batch<T> batch = view();
        const auto g = as_span<T>(gradient);
        const Rows rows = rows_.view();
        const std::size_t n = batch.size();
        const int G = rows.cells(), K = rows.statistics();
        T* out;
        Back back{new_array<T>(n, out), {}, nb::none()};
        double* raw = nullptr;
        if (details) back.raw = new_array<double>(n, raw);
        Work work(n);
        Numbers factor(G), bank(4 * std::size_t(G), 0.0);
        for (int c = 0; c < G; ++c) factor[c] = R::factor(solved.shift[c]);
        for (std::size_t i = 0; i < n; ++i) {  // four banks in turn: samples of one cell need not wait for each other
            const std::int32_t c = batch.cell[i];
            double slope = side[i] == 0 ? 1.0 : 0.0;
            if constexpr (R::smooth) slope *= R::respond(R::prepare(double(batch.z[i])), factor[c]).slope;
            bank[(i & 3) * G + c] += slope * double(g[i]);
        }
        Numbers sums(G), q(K), H(std::size_t(K) * K);
        for (int c = 0; c < G; ++c) sums[c] = (bank[c] + bank[G + c]) + (bank[2 * G + c] + bank[3 * G + c]);
        for (int k = 0; k < K; ++k) q[k] = 0.0;
        for (int c = 0; c < G; ++c) {
            for (auto e = rows.start[c]; e < rows.start[c + 1]; ++e) q[rows.statistic[e]] += rows.value[e] * sums[c];
        }
        rows.gram(solved.slopes, H);
        back.v = solve_active(rows, solved.nu, H, q);
        rows.spread(back.v, sums);
        for (std::size_t i = 0; i < n; ++i) {
            const std::int32_t c = batch.cell[i];
            const double left = double(g[i]) - batch.weight_of(i) * sums[c];
            if (raw) raw[i] = left;
            double sensitivity = side[i] == 0 ? 1.0 : 0.0;
            if constexpr (R::smooth) sensitivity *= R::sensitivity(R::prepare(double(batch.z[i])), factor[c]);
            out[i] = Float<T>::nearest(sensitivity * left);
        }
        return back;
    }

   private:
    // The lock is released for long work, so that other threads go on.
    struct Work {
        explicit Work(std::size_t n) {
            if (n > 4096) release.emplace();
        }
        std::optional<nb::gil_scoped_release> release;
    };

    Batch<T> view() const {
        return {as_span<T>(z_), entries(cell_), entries(weights_), entries(lo_), entries(hi_)};
    }

    AnyVector z_;
    Int32s cell_;
    Doubles weights_, lo_, hi_;
    PythonRows rows_;
};

template <class T, class... Arguments>
std::unique_ptr<Projection> make(Discrepancy discrepancy, Arguments&&... arguments) {
    switch (discrepancy) {
        case Discrepancy::entropy:
            return std::make_unique<ProjectionOf<T, Entropy>>(arguments...);
        case Discrepancy::logits:
            return std::make_unique<ProjectionOf<T, Logits>>(arguments...);
        case Discrepancy::kl:
            return std::make_unique<ProjectionOf<T, GeneralizedKl>>(arguments...);
        default:
            return std::make_unique<ProjectionOf<T, Squared>>(arguments...);
    }
}

std::unique_ptr<Projection> project(int dtype, int discrepancy, const AnyVector& z, const Int32s& cell,
                                    const Doubles& weights, const Doubles& count, const Doubles& cell_weight,
                                    const Doubles& lo, const Doubles& hi, const nb::tuple& rows,
                                    const std::optional<Doubles>& start, bool exact) {
    const auto make_of = [&]<class T>() {
        return make<T>(Discrepancy(discrepancy), z, cell, weights, count, cell_weight, lo, hi, rows, start, exact);
    };
    switch (Dtype(dtype)) {
        case Dtype::float32:
            return make_of.operator()<float>();
        case Dtype::float16:
            return make_of.operator()<Half>();
        case Dtype::bfloat16:
            return make_of.operator()<Bfloat>();
        default:
            return make_of.operator()<double>();
    }
}

// Numbers of an object as an array that keeps it alive.
template <class T>
nb::ndarray<nb::numpy, const T, nb::ndim<1>> seen(const std::vector<T>& values) {
    return {values.data(), {values.size()}};
}

}  // namespace

void bind_project(nb::module_& m) {
    nb::class_<Projection>(m, "Projection")
        .def_ro("value", &Projection::value)
        .def_prop_ro("end", [](const Projection& p) { return int(p.end); })
        .def_prop_ro("holds", [](const Projection& p) { return p.end == End::solved && all_hold(p.solved.missed); })
        .def_prop_ro("nu", [](const Projection& p) { return seen(p.solved.nu); })
        .def_prop_ro("shift", [](const Projection& p) { return seen(p.solved.shift); })
        .def_prop_ro("slopes", [](const Projection& p) { return seen(p.solved.slopes); })
        .def_prop_ro("missed", [](const Projection& p) { return seen(p.solved.missed); })
        .def_prop_ro("statistics", [](const Projection& p) { return seen(p.solved.statistics); })
        .def_prop_ro("absolute", [](const Projection& p) { return seen(p.solved.absolute); })
        .def_prop_ro("side", [](const Projection& p) { return seen(p.side); })
        .def("pull_back",
             [](const Projection& p, const AnyVector& gradient) { return p.pull_back(gradient, false).z; })
        .def("pull_back_all", [](const Projection& p, const AnyVector& gradient) {
            Projection::Back back = p.pull_back(gradient, true);
            return nb::make_tuple(back.z, to_numpy(std::move(back.v)), back.raw);
        });
    m.def("project", &project, nb::arg("dtype"), nb::arg("discrepancy"), nb::arg("z").noconvert(),
          nb::arg("cell").noconvert(), nb::arg("weights").noconvert(), nb::arg("count").noconvert(),
          nb::arg("cell_weight").noconvert(), nb::arg("lo").noconvert(), nb::arg("hi").noconvert(), nb::arg("rows"),
          nb::arg("start").none(), nb::arg("exact"));
}

}  // namespace fairlayer
