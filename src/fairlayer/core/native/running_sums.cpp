// A first function, to show the way of arrays in and out. It goes as soon as there is a real one.
#include <numeric>

#include "arrays.hpp"
#include "bindings.hpp"

namespace fairlayer {

template <class T>
NewVector<T> running_sums(const Vector<T>& values) {
    const std::span<const T> given = entries(values);
    std::vector<T> sums(given.size());
    std::partial_sum(given.begin(), given.end(), sums.begin());
    return to_numpy(std::move(sums));
}

void bind_running_sums(nb::module_& m) {
    m.def("running_sums", &running_sums<double>, nb::arg("values").noconvert());
    m.def("running_sums", &running_sums<float>, nb::arg("values").noconvert());
}

}  // namespace fairlayer
