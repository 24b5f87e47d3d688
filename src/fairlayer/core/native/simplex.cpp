// Class probabilities: outputs (n, d) whose rows lie on the simplex, projected so that every class is fair.
//
// A sample in cell c counts as d, in the cells c d to c d + d - 1: whatever is said of rows, sums and certificates is
// said of every class. What differs is the response, of all classes of a sample together, and its slope, a block of
// d x d for every cell:
//
//     relative entropy    y_j = z_j exp(-s_j) / sum_l z_l exp(-s_l)         slope  diag(y) - y y'
//     squared             y = the point of the simplex nearest to z - s     slope  diag(1_A) - 1_A 1_A' / |A|
//
// with A the support of y.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/unique_ptr.h>

#include "bindings.hpp"
#include "exact_sums.hpp"
#include "projection.hpp"

namespace fairlayer {

namespace {

template <class T>
struct Points {
    std::span<const T> z;  // (n d,)
    std::span<const std::int32_t> cell;
    std::span<const double> weight;  // (n,), or empty where all are 1
    int d;

    std::size_t size() const { return cell.size(); }
    double weight_of(std::size_t i) const { return weight.empty() ? 1.0 : weight[i]; }
    void read(std::size_t i, std::span<double> row) const {
        for (int j = 0; j < d; ++j) row[j] = double(z[i * d + j]);
    }
};

// Relative entropy. A cell's factors are exp(-s), up to one that is common to its classes.
struct EntropyOnSimplex {
    static constexpr double reach = 30.0, least_response = 1.0;
    static void prepare(std::span<const double> shift, std::span<double> factor) {
        const double least = *std::min_element(shift.begin(), shift.end());
        for (std::size_t j = 0; j < shift.size(); ++j) factor[j] = std::exp(-std::min(shift[j] - least, 600.0));
    }
    static void respond(std::span<const double> z, std::span<const double> factor, std::span<double> y) {
        double total = 0.0;
        for (std::size_t j = 0; j < y.size(); ++j) total += y[j] = z[j] * factor[j];
        for (double& one : y) one /= total;
    }
    static double slope(double y, int) { return y * (1.0 - y); }
    static int support(std::span<const double> y) { return int(y.size()); }
    // x <- (diag(y) - y y') x
    static void times_slope(std::span<const double> y, std::span<double> x) {
        double mean = 0.0;
        for (std::size_t j = 0; j < y.size(); ++j) mean += y[j] * x[j];
        for (std::size_t j = 0; j < y.size(); ++j) x[j] = y[j] * (x[j] - mean);
    }
    static void add_block(std::span<const double> y, double weight, int, std::span<double> block) {
        const std::size_t d = y.size();
        for (std::size_t j = 0; j < d; ++j) {
            const double own = weight * y[j];
            block[j * d + j] += own;
            for (std::size_t l = 0; l <= j; ++l) block[j * d + l] -= own * y[l];
        }
    }
    static void to_input(std::span<const double> z, std::span<double> gradient) {
        for (std::size_t j = 0; j < z.size(); ++j) gradient[j] /= z[j];  // the sensitivity to z is the slope over z
    }
};

struct SquaredOnSimplex {
    static constexpr double reach = 4.0, least_response = 0.0;
    static void prepare(std::span<const double> shift, std::span<double> factor) {
        std::copy(shift.begin(), shift.end(), factor.begin());
    }
    static void respond(std::span<const double> z, std::span<const double> shift, std::span<double> y) {
        const int d = int(z.size());
        double top = -infinity, above = 0.0;
        for (int j = 0; j < d; ++j) top = std::max(top, y[j] = z[j] - shift[j]);
        for (double& one : y) above += one -= top;  // from the largest on, so that far out nothing is lost to rounding
        double theta = (above - 1.0) / d;
        for (int size = d;;) {  // leave out what the threshold makes negative, until nothing is
            int left = 0;
            above = 0.0;
            for (const double one : y) {
                above += one > theta ? one : 0.0;
                left += one > theta;
            }
            if (left >= size || left == 0) break;
            size = left;
            theta = (above - 1.0) / left;
        }
        for (double& one : y) one = std::max(one - theta, 0.0);
    }
    static double slope(double y, int support) { return y > 0.0 ? 1.0 - 1.0 / support : 0.0; }
    static int support(std::span<const double> y) {
        return int(std::count_if(y.begin(), y.end(), [](double one) { return one > 0.0; }));
    }
    static void times_slope(std::span<const double> y, std::span<double> x) {
        double mean = 0.0;
        for (std::size_t j = 0; j < y.size(); ++j) mean += y[j] > 0.0 ? x[j] : 0.0;
        mean /= support(y);
        for (std::size_t j = 0; j < y.size(); ++j) x[j] = y[j] > 0.0 ? x[j] - mean : 0.0;
    }
    static void add_block(std::span<const double> y, double weight, int support, std::span<double> block) {
        const std::size_t d = y.size();
        for (std::size_t j = 0; j < d; ++j) {
            if (y[j] == 0.0) continue;
            block[j * d + j] += weight;
            for (std::size_t l = 0; l <= j; ++l) block[j * d + l] -= y[l] > 0.0 ? weight / support : 0.0;
        }
    }
    static void to_input(std::span<const double>, std::span<double>) {}
};

template <class T, class R>
class SimplexPasses {
  public:
    SimplexPasses(const Points<T>& points, int cells, std::span<T> out)
        : points_(points), out_(out), factor_(std::size_t(cells) * points.d), y_(points.d), row_(points.d) {}

    void measure(Sums& sums) {
        const Numbers none(factor_.size(), 0.0);
        this->sums(none, sums);
        sums.absolute = sums.S;
    }

    void sums(std::span<const double> shift, Sums& sums) {
        check_interrupt(points_.z.size());
        prepare(shift, sums);
        each([&](std::size_t, std::size_t first, double w) {
            const int support = R::support(y_);
            for (int j = 0; j < points_.d; ++j) {
                sums.S[first + j] += w * y_[j];
                sums.D[first + j] += w * R::slope(y_[j], support);
            }
        });
    }

    void write(std::span<const double> shift, Sums& sums) {
        prepare(shift, sums);
        Numbers lost(sums.S.size(), 0.0), count(sums.S.size(), 0.0);
        each([&](std::size_t i, std::size_t first, double w) {
            const int support = R::support(y_);
            for (int j = 0; j < points_.d; ++j) {
                const double near = std::max(y_[j], R::least_response * Float<T>::least);
                const T y = Float<T>::nearest(near);
                out_[i * points_.d + j] = y;
                double rest;
                two_sum(sums.S[first + j], w * double(y), sums.S[first + j], rest);
                lost[first + j] += rest;
                sums.D[first + j] += w * R::slope(y_[j], support);
                count[first + j] += 1.0;
            }
        });
        const bool weighted = !points_.weight.empty();
        for (std::size_t c = 0; c < sums.S.size(); ++c) {
            sums.S[c] += lost[c];  // of positive numbers: their sum is also that of their absolute values
            const double n = count[c] * unit;
            sums.error[c] = ((weighted ? 4.0 : 2.0) * unit + 4.0 * n * n) * std::abs(sums.S[c]) + count[c] * tiny;
        }
    }

    void exact(Sums& sums) const {
        const int d = points_.d;
        std::vector<std::int32_t> cell(out_.size());
        Numbers weight(points_.weight.empty() ? 0 : out_.size());
        for (std::size_t v = 0; v < cell.size(); ++v) {
            cell[v] = points_.cell[v / d] * d + std::int32_t(v % d);
            if (!weight.empty()) weight[v] = points_.weight[v / d];
        }
        exact_sums(out_, cell, weight, sums.S, sums.error);
    }

    // M' B M, B the blocks of slopes, their diagonals at least `floor`.
    void gram(const Rows& rows, const Sums&, std::span<const double> floor, std::span<double> H) {
        const int d = points_.d, G = int(factor_.size()) / d, K = rows.statistics();
        blocks_.assign(std::size_t(G) * d * d, 0.0);
        each([&](std::size_t, std::size_t first, double w) {
            R::add_block(y_, w, R::support(y_), std::span(blocks_).subspan(first * d, std::size_t(d) * d));
        });
        std::fill(H.begin(), H.end(), 0.0);
        for (int c = 0; c < G; ++c) {
            double* block = &blocks_[std::size_t(c) * d * d];
            for (int j = 0; j < d; ++j) {
                block[j * d + j] = std::max(block[j * d + j], floor[c * d + j]);
                for (int l = 0; l < j; ++l) block[l * d + j] = block[j * d + l];
            }
            for (int j = 0; j < d; ++j) {
                for (int l = 0; l < d; ++l) {
                    const double both = block[j * d + l];
                    if (both == 0.0) continue;
                    for (auto a = rows.start[c * d + j]; a < rows.start[c * d + j + 1]; ++a) {
                        double* line = &H[rows.statistic[a] * K];
                        const double weighted = rows.value[a] * both;
                        for (auto b = rows.start[c * d + l]; b < rows.start[c * d + l + 1]; ++b) {
                            line[rows.statistic[b]] += weighted * rows.value[b];
                        }
                    }
                }
            }
        }
    }

    // Call `work` for every sample, its response to the shifts prepared last in y().
    template <class Work>
    void each(const Work& work) {
        const std::size_t d = points_.d;
        for (std::size_t i = 0; i < points_.size(); ++i) {
            const std::size_t first = points_.cell[i] * d;
            points_.read(i, row_);
            R::respond(row_, std::span(factor_).subspan(first, d), y_);
            work(i, first, points_.weight_of(i));
        }
    }

    void prepare(std::span<const double> shift) {
        const std::size_t d = points_.d;
        for (std::size_t first = 0; first < shift.size(); first += d) {
            R::prepare(shift.subspan(first, d), std::span(factor_).subspan(first, d));
        }
    }

    std::span<const double> y() const { return y_; }
    std::span<const double> row() const { return row_; }

  private:
    void prepare(std::span<const double> shift, Sums& sums) {
        prepare(shift);
        std::fill(sums.S.begin(), sums.S.end(), 0.0);
        std::fill(sums.D.begin(), sums.D.end(), 0.0);
    }

    const Points<T>& points_;
    std::span<T> out_;
    Numbers factor_, y_, row_, blocks_;
};

template <class T, class R>
class SimplexProjection final : public Projection {
  public:
    SimplexProjection(const AnyArray& z, const Int32s& cell, const Doubles& weights, const Doubles& count,
                      const Doubles& cell_weight, const nb::tuple& rows, const std::optional<Doubles>& start,
                      bool exact)
        : z_(z), cell_(cell), weights_(weights), rows_(rows) {
        const Points<T> points = view();
        const int d = points.d, cells = int(count.size()) * d;
        T* out;
        value = new_array<T>(z.size(), out);
        Numbers of_class(cells);
        CellFacts facts;
        facts.weight.resize(cells);
        facts.least.assign(cells, 0.0);
        facts.most.resize(cells);
        facts.reach = R::reach;
        for (int c = 0; c < cells; ++c) {
            of_class[c] = count.data()[c / d];
            facts.most[c] = cell_weight.data()[c / d];
            facts.weight[c] = facts.most[c] / d;
        }
        facts.count = of_class;
        Settings settings;
        settings.rounding = exact ? Float<T>::rounding : 0.0;
        if (start) settings.start = entries(*start);
        const Rows view_of_rows = rows_.view();
        const LongWork work(z.size());
        SimplexPasses<T, R> passes(points, int(count.size()), {out, z.size()});
        solved = solve(view_of_rows, facts, passes, settings);
        end = End(int(solved.outcome));
    }

    nb::object pull_back(const AnyArray& gradient) const override {
        const Points<T> points = view();
        const auto g = as_span<T>(gradient);
        const Rows rows = rows_.view();
        const int d = points.d, K = rows.statistics(), cells = rows.cells();
        T* out;
        nb::object found = new_array<T>(g.size(), out);
        const LongWork work(g.size());
        SimplexPasses<T, R> passes(points, cells / d, {});
        Numbers sums(cells, 0.0), none(cells, 0.0), q(K), H(std::size_t(K) * K), x(d);
        passes.prepare(solved.shift);
        passes.each([&](std::size_t i, std::size_t first, double) {
            for (int j = 0; j < d; ++j) x[j] = double(g[i * d + j]);
            R::times_slope(passes.y(), x);
            for (int j = 0; j < d; ++j) sums[first + j] += x[j];
        });
        rows.add_up(sums, q);
        passes.gram(rows, Sums(0), none, H);
        rows.spread(solve_active(rows, solved.nu, H, q), sums);
        passes.each([&](std::size_t i, std::size_t first, double w) {
            for (int j = 0; j < d; ++j) x[j] = double(g[i * d + j]) - w * sums[first + j];
            R::times_slope(passes.y(), x);
            R::to_input(passes.row(), x);
            for (int j = 0; j < d; ++j) out[i * d + j] = Float<T>::nearest(x[j]);
        });
        return found;
    }

  private:
    Points<T> view() const { return {as_span<T>(z_), entries(cell_), entries(weights_), int(z_.shape(1))}; }

    AnyArray z_;
    Int32s cell_;
    Doubles weights_;
    PythonRows rows_;
};

std::unique_ptr<Projection> project_simplex(int dtype, bool entropy, const AnyArray& z, const Int32s& cell,
                                            const Doubles& weights, const Doubles& count, const Doubles& cell_weight,
                                            const nb::tuple& rows, const std::optional<Doubles>& start, bool exact) {
    return with_dtype(Dtype(dtype), [&]<class T>() -> std::unique_ptr<Projection> {
        if (entropy) {
            return std::make_unique<SimplexProjection<T, EntropyOnSimplex>>(z, cell, weights, count, cell_weight, rows,
                                                                            start, exact);
        }
        return std::make_unique<SimplexProjection<T, SquaredOnSimplex>>(z, cell, weights, count, cell_weight, rows,
                                                                        start, exact);
    });
}

}  // namespace

void bind_simplex(nb::module_& m) {
    m.def("project_simplex", &project_simplex, nb::arg("dtype"), nb::arg("entropy"), nb::arg("z").noconvert(),
          nb::arg("cell").noconvert(), nb::arg("weights").noconvert(), nb::arg("count").noconvert(),
          nb::arg("cell_weight").noconvert(), nb::arg("rows"), nb::arg("start").none(), nb::arg("exact"));
}

}  // namespace fairlayer
