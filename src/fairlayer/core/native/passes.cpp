// Sums and rows for those who take sums in Python: a user's own discrepancy, a file, a cluster, a database.
#include <nanobind/stl/optional.h>

#include "exact_sums.hpp"
#include "projection.hpp"

namespace fairlayer {

namespace {

// An object with the methods of `fairlayer.core.Passes`.
class PythonPasses final : public Passes {
  public:
    explicit PythonPasses(nb::object passes) : passes_(std::move(passes)) {}

    void measure(Sums& sums) override { read(passes_.attr("measure")(), {&sums.S, &sums.D, &sums.absolute}); }
    void take(std::span<const double> shift, Sums& sums) override {
        read(passes_.attr("sums")(numpy(shift)), {&sums.S, &sums.D});
    }
    void write(std::span<const double> shift, Sums& sums) override {
        read(passes_.attr("write")(numpy(shift)), {&sums.S, &sums.D, &sums.error});
    }
    void exact(Sums& sums) override { read(passes_.attr("exact")(), {&sums.S, &sums.error}); }

  private:
    static NewVector<double> numpy(std::span<const double> values) {
        return to_numpy(Numbers(values.begin(), values.end()));
    }

    static void read(const nb::object& given, std::initializer_list<Numbers*> wanted) {
        std::size_t at = 0;
        for (Numbers* numbers : wanted) {
            const auto array = nb::cast<Doubles>(given[at++]);
            if (array.size() != numbers->size()) throw nb::value_error("passes must return one number for each cell");
            std::copy_n(array.data(), array.size(), numbers->begin());
        }
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }

    nb::object passes_;
};

// Exact sums that grow over several calls: a row of limbs for each cell.
using LimbMatrix = MutableMatrix<std::int64_t>;

Limbs row_of(const LimbMatrix& limbs, std::size_t j) {
    return Limbs(std::span(limbs.data() + j * limbs.shape(1), limbs.shape(1)));
}

void accumulate(const Doubles& values, const Int32s& cell, const Doubles& weight, const LimbMatrix& limbs) {
    for (std::size_t i = 0; i < values.size(); ++i) {
        Limbs sum = row_of(limbs, cell.data()[i]);
        if (weight.size() == 0) {
            sum.add(values.data()[i]);
        } else {
            sum.add_product(values.data()[i], weight.data()[i]);
        }
    }
}

void carry(const LimbMatrix& limbs) {
    for (std::size_t j = 0; j < limbs.shape(0); ++j) row_of(limbs, j).carry();
}

}  // namespace

void bind_passes(nb::module_& m) {
    m.attr("NEARLY") = nearly;
    nb::class_<Solved>(m, "Solved")
        .def_prop_ro("end", [](const Solved& s) { return int(s.outcome); })
        .def_prop_ro("nu", [](const Solved& s) { return seen(s.nu); })
        .def_prop_ro("shift", [](const Solved& s) { return seen(s.shift); })
        .def_prop_ro("slopes", [](const Solved& s) { return seen(s.slopes); })
        .def_prop_ro("missed", [](const Solved& s) { return seen(s.missed); })
        .def_prop_ro("statistics", [](const Solved& s) { return seen(s.statistics); })
        .def_prop_ro("absolute", [](const Solved& s) { return seen(s.absolute); });
    m.def(
        "solve",
        [](const nb::tuple& given, nb::object passes, const Doubles& count, const Doubles& weight, const Doubles& least,
           const Doubles& most, double reach, double rounding, const std::optional<Doubles>& start) {
            const PythonRows python_rows(given);
            const Rows rows = python_rows.view();
            CellFacts facts;
            facts.count = entries(count);
            facts.weight.assign(weight.data(), weight.data() + weight.size());
            facts.least.assign(least.data(), least.data() + least.size());
            facts.most.assign(most.data(), most.data() + most.size());
            facts.reach = reach;
            Settings settings;
            settings.rounding = rounding;
            if (start) settings.start = entries(*start);
            PythonPasses own(std::move(passes));
            return solve(rows, facts, own, settings);
        },
        nb::arg("rows"), nb::arg("passes"), array("count"), array("weight"), array("least"), array("most"),
        nb::arg("reach"), nb::arg("rounding"), nb::arg("start").none());
    m.def(
        "statistics",
        [](const nb::tuple& given, const Doubles& sums) {
            const PythonRows rows(given);
            Numbers q(rows.offset.size());
            rows.view().measure(entries(sums), q);
            return to_numpy(std::move(q));
        },
        nb::arg("rows"), array("sums"), "Statistics of cell sums.");
    m.def(
        "shortfalls",
        [](const nb::tuple& given, const Doubles& sums, const Doubles& error) {
            const PythonRows rows(given);
            Numbers missed(rows.first.size() - 1);
            shortfalls(rows.view(), entries(sums), entries(error), missed);
            return to_numpy(std::move(missed));
        },
        nb::arg("rows"), array("sums"), array("error"),
        "By how much some row of each family may be missed; 0 or less where all certainly hold.");
    m.def(
        "largest_excess",
        [](const nb::tuple& given, const Doubles& q) { return largest_excess(PythonRows(given).view(), entries(q)); },
        nb::arg("rows"), array("q"), "By how much the worst row exceeds its bound.");
    m.def(
        "solve_active",
        [](const nb::tuple& given, const Doubles& nu, const Doubles& slopes, const Doubles& q) {
            const PythonRows python_rows(given);
            const Rows rows = python_rows.view();
            Gram H(rows.statistics());
            rows.gram(entries(slopes), H);
            return to_numpy(solve_active(rows, entries(nu), H, entries(q)));
        },
        nb::arg("rows"), array("nu"), array("slopes"), array("q"),
        "Multipliers v of the statistics with R H v = R q, where R holds the active rows and H is M'DM.");
    m.def("accumulate", &accumulate, array("values"), array("cell"), array("weight"), array("limbs"),
          "Add values, times their weights where there are any, to the sums of their cells.");
    m.def("carry", &carry, array("limbs"), "Bring every limb but the last below 2^32.");
    m.def(
        "exact_sums",
        [](const Doubles& values, const Int32s& cell, const Doubles& weight, const MutableVector<double>& sums,
           const MutableVector<double>& error) {
            exact_sums(entries(values), entries(cell), entries(weight), entries(sums), entries(error));
        },
        array("values"), array("cell"), array("weight"), array("sums"), array("error"),
        "Cell sums of float64 values, rounded once; `error` bounds what that rounding leaves out.");
}

}  // namespace fairlayer
