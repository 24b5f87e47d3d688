// Batches of independent problems, lower <= A y <= upper, each by the same solver: every output is its own cell.
#include <numeric>
#include <thread>

#include "projection.hpp"
#include "samples.hpp"

namespace fairlayer {

namespace {

using Cube = nb::ndarray<const double, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

// Rows of every problem; what is the same for all is there once.
struct Problems {
    Cube A;                     // (B or 1, m, n)
    DoubleMatrix lower, upper;  // (B or 1, m)
    Doubles weight;             // (n,), or empty where all are 1
    Doubles lo, hi;             // (n,) or (1,)

    std::size_t rows() const { return A.shape(1); }
    std::size_t outputs() const { return A.shape(2); }
    const double* matrix(std::size_t b) const { return A.data() + (A.shape(0) > 1 ? b : 0) * rows() * outputs(); }
    double lower_of(std::size_t b, std::size_t k) const {
        return lower.data()[(lower.shape(0) > 1 ? b : 0) * rows() + k];
    }
    double upper_of(std::size_t b, std::size_t k) const {
        return upper.data()[(upper.shape(0) > 1 ? b : 0) * rows() + k];
    }
};

// The rows of one problem after another, over the same layout: every cell has an entry for every row.
class ProblemRows {
  public:
    explicit ProblemRows(const Problems& problems)
        : problems_(problems),
          m_(problems.rows()),
          n_(problems.outputs()),
          start_(n_ + 1),
          first_(m_ + 1),
          statistic_(n_ * m_),
          value_(n_ * m_),
          offset_(m_, 0.0),
          present_(new bool[m_]),
          family_(4 * m_, 0.0) {
        for (std::size_t c = 0; c <= n_; ++c) start_[c] = std::int64_t(c * m_);
        for (std::size_t e = 0; e < n_ * m_; ++e) statistic_[e] = std::int64_t(e % m_);
        for (std::size_t k = 0; k <= m_; ++k) first_[k] = std::int64_t(k);
        for (std::size_t k = 0; k < m_; ++k) {
            present_[k] = true;
            family_[m_ + k] = 1.0;
        }
    }

    Rows of(std::size_t b) {
        const double* A = problems_.matrix(b);
        for (std::size_t c = 0; c < n_; ++c) {
            const double per = problems_.weight.size() ? 1.0 / problems_.weight.data()[c] : 1.0;
            for (std::size_t k = 0; k < m_; ++k) value_[c * m_ + k] = A[k * n_ + c] * per;
        }
        for (std::size_t k = 0; k < m_; ++k) {
            family_[2 * m_ + k] = problems_.lower_of(b, k);
            family_[3 * m_ + k] = problems_.upper_of(b, k);
        }
        return {start_, statistic_, value_, offset_, {present_.get(), m_}, first_, family_};
    }

  private:
    const Problems& problems_;
    std::size_t m_, n_;
    std::vector<std::int64_t> start_, first_, statistic_;
    Numbers value_, offset_;
    std::unique_ptr<bool[]> present_;
    Numbers family_;
};

// Call work(first, last) on parts of the problems, each in a thread of its own. threads: at most.
template <class Work>
void by_threads(std::size_t problems, std::size_t threads, const Work& work) {
    threads = std::max<std::size_t>(std::min(threads, problems / 64), 1);
    std::vector<std::thread> others;
    for (std::size_t t = 1; t < threads; ++t) {
        others.emplace_back(work, problems * t / threads, problems * (t + 1) / threads);
    }
    work(0, problems / threads);
    for (std::thread& other : others) other.join();
}

struct Ends {
    nb::object value;                // (B n,) in z's dtype
    std::vector<std::uint8_t> sure;  // (B,) whether the output certainly satisfies its rows, and none is nearer
    Numbers statistics, nu, missed;  // (B m,)
    std::vector<std::int8_t> side;   // (B n,)
};

template <class T>
Ends project_affine(const AnyArray& z, const Problems& problems, std::size_t threads) {
    const std::size_t n = problems.outputs(), m = problems.rows(), B = z.size() / std::max<std::size_t>(n, 1);
    T* out;
    Ends ends{
        new_array<T>(z.size(), out),       std::vector<std::uint8_t>(B), Numbers(B * m), Numbers(B * m), Numbers(B * m),
        std::vector<std::int8_t>(z.size())};
    const auto given = as_span<T>(z);
    const nb::gil_scoped_release release;
    by_threads(B, threads, [&](std::size_t first, std::size_t last) {
        std::vector<std::int32_t> cell(n);
        std::iota(cell.begin(), cell.end(), 0);
        const Numbers ones(n, 1.0);
        const std::span<const double> weight = entries(problems.weight);
        const std::span<const double> cell_weight = weight.empty() ? std::span<const double>(ones) : weight;
        ProblemRows rows_of(problems);
        for (std::size_t b = first; b < last; ++b) {
            const Batch<T> batch{given.subspan(b * n, n), cell, weight, entries(problems.lo), entries(problems.hi)};
            const Rows rows = rows_of.of(b);
            CellFacts facts;
            facts.count = ones;
            const Range range = range_of(batch.z);
            if (!range.finite || !range.fits(cell_weight)) continue;  // which get a closer look
            describe<T, Squared>(batch, range, cell_weight, facts);
            SamplePasses<T, Squared> passes(batch, ones, {out + b * n, n}, std::span(ends.side).subspan(b * n, n));
            const Solved solved = solve(rows, facts, passes, {Float<T>::rounding, {}, {}});
            ends.sure[b] = solved.outcome == Outcome::solved && all_hold(solved.missed) && solved.tight;
            std::copy(solved.statistics.begin(), solved.statistics.end(), &ends.statistics[b * m]);
            std::copy(solved.nu.begin(), solved.nu.end(), &ends.nu[b * m]);
            std::copy(solved.missed.begin(), solved.missed.end(), &ends.missed[b * m]);
        }
    });
    return ends;
}

template <class T>
nb::object pull_back_affine(const AnyArray& gradient, const Problems& problems, const Doubles& nu,
                            const Vector<std::int8_t>& side, std::size_t threads) {
    const std::size_t n = problems.outputs(), m = problems.rows(), B = gradient.size() / std::max<std::size_t>(n, 1);
    T* out;
    nb::object found = new_array<T>(gradient.size(), out);
    const auto g = as_span<T>(gradient);
    const nb::gil_scoped_release release;
    by_threads(B, threads, [&](std::size_t first, std::size_t last) {
        ProblemRows rows_of(problems);
        std::vector<std::int32_t> cell(n);
        std::iota(cell.begin(), cell.end(), 0);
        Solved solved;
        solved.shift.assign(n, 0.0);  // responses are linear: it does not matter where
        solved.slopes.resize(n);
        const std::span<const double> weight = entries(problems.weight);
        for (std::size_t b = first; b < last; ++b) {
            const Batch<T> batch{{}, cell, weight, {}, {}};
            const auto sides = entries(side).subspan(b * n, n);
            const auto multipliers = entries(nu).subspan(b * m, m);
            solved.nu.assign(multipliers.begin(), multipliers.end());
            for (std::size_t c = 0; c < n; ++c) solved.slopes[c] = sides[c] == 0 ? batch.weight_of(c) : 0.0;
            pull_back<T, Squared>(batch, rows_of.of(b), solved, sides, g.subspan(b * n, n), out + b * n);
        }
    });
    return found;
}

}  // namespace

void bind_affine(nb::module_& m) {
    nb::class_<Problems>(m, "Problems")
        .def(nb::init<Cube, DoubleMatrix, DoubleMatrix, Doubles, Doubles, Doubles>(), array("A"), array("lower"),
             array("upper"), array("weight"), array("lo"), array("hi"));
    m.def(
        "project_affine",
        [](int dtype, const AnyArray& z, const Problems& problems, std::size_t threads) {
            Ends ends = with_dtype(Dtype(dtype), [&]<class T>() { return project_affine<T>(z, problems, threads); });
            return nb::make_tuple(ends.value, to_numpy(std::move(ends.sure)), to_numpy(std::move(ends.statistics)),
                                  to_numpy(std::move(ends.nu)), to_numpy(std::move(ends.missed)),
                                  to_numpy(std::move(ends.side)));
        },
        nb::arg("dtype"), array("z"), nb::arg("problems"), nb::arg("threads"));
    m.def(
        "pull_back_affine",
        [](int dtype, const AnyArray& gradient, const Problems& problems, const Doubles& nu,
           const Vector<std::int8_t>& side, std::size_t threads) {
            return with_dtype(Dtype(dtype),
                              [&]<class T>() { return pull_back_affine<T>(gradient, problems, nu, side, threads); });
        },
        nb::arg("dtype"), array("gradient"), nb::arg("problems"), array("nu"), array("side"), nb::arg("threads"));
}

}  // namespace fairlayer
