#pragma once
#include <vector>
namespace tsdiag {
struct Reading {
    std::vector<double> values;
};
}  // namespace tsdiag
