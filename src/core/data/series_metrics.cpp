#include "tsdiag/metric.hpp"

/// Metrics of logged series of numbers.
namespace tsdiag {
namespace {

constexpr Metric of_series[] = {
    {.name = metric::grad_rsd,
     .symbol = "std(g)/mean(g)",
     .definition = "std(g)/mean(g) of the series g_1 .. g_T, std with T - 1; `low`, `high`: 95 % "
                   "interval; `stderr`; `count`: T",
     .source = "[DEVIL] Table 2",
     .range = ">= 0",
     .undefined = "T < 2, or mean <= 0",
     .of = Of::series},
    {.name = metric::grad_mean,
     .symbol = "mean(g)",
     .definition =
         "mean(g); `stderr`: from 8 cosines, as that of grad_rsd; below 9 numbers std(g)/sqrt(T)",
     .range = ">= 0",
     .undefined = "T < 2",
     .of = Of::series},
    {.name = metric::grad_rsd_ratio,
     .symbol = "ratio of grad_rsd",
     .definition = "grad_rsd of `model` over that of the series in `tensor`; the intervals of all "
                   "pairs hold jointly; `count`: numbers of both",
     .range = ">= 0",
     .undefined = "one of the two has no interval",
     .of = Of::series},
    {.name = metric::grad_norm_mean,
     .symbol = "moving mean of g",
     .definition = "x = step, y = the mean of g over max(5, T/25) neighbours; the curve "
                   "`grad_norm` beside it is g itself",
     .range = ">= 0",
     .undefined = "never",
     .of = Of::curve}};

}  // namespace

std::span<const Metric> series_metrics() { return of_series; }

}  // namespace tsdiag
