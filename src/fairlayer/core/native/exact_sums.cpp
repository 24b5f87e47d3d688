#include "exact_sums.hpp"

#include "bindings.hpp"

namespace fairlayer {

namespace {

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

void round_sums(const LimbMatrix& limbs, const MutableVector<double>& sums, const MutableVector<double>& error) {
    const bool products = limbs.shape(1) != limbs_of_sums;
    for (std::size_t j = 0; j < limbs.shape(0); ++j) {
        const double sum = row_of(limbs, j).rounded(products ? -2148 : -1074);
        sums.data()[j] = sum;
        error.data()[j] = unit * std::abs(sum) + (products ? tiny : 0.0);
    }
}

}  // namespace

void bind_exact_sums(nb::module_& m) {
    m.def("accumulate", &accumulate, nb::arg("values").noconvert(), nb::arg("cell").noconvert(),
          nb::arg("weight").noconvert(), nb::arg("limbs").noconvert(),
          "Add values, times their weights where there are any, to the sums of their cells.");
    m.def("carry", &carry, nb::arg("limbs").noconvert(), "Bring every limb but the last below 2^32.");
    m.def("round_sums", &round_sums, nb::arg("limbs").noconvert(), nb::arg("sums").noconvert(),
          nb::arg("error").noconvert(), "Sums as floats, each rounded once, and a bound on what that leaves out.");
    m.def(
        "exact_sums",
        [](const Doubles& values, const Int32s& cell, const Doubles& weight, const MutableVector<double>& sums,
           const MutableVector<double>& error) {
            exact_sums(entries(values), entries(cell), entries(weight), entries(sums), entries(error));
        },
        nb::arg("values").noconvert(), nb::arg("cell").noconvert(), nb::arg("weight").noconvert(),
        nb::arg("sums").noconvert(), nb::arg("error").noconvert(),
        "Cell sums of float64 values, rounded once; `error` bounds what that rounding leaves out.");
}

}  // namespace fairlayer
