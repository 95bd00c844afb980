#pragma once
#include <cstdio>
#include <string>
#include <vector>

#include "tsdiag/report.hpp"

/// Draws a figure into figures/NAME.svg and prints so below the cell; stored notebooks contain the
/// picture.
inline void show(const tsdiag::Figure& figure) {
    tsdiag::draw(std::vector{figure}, "figures");
    std::printf("[figure] figures/%s.svg %s\n", figure.name.c_str(), figure.alt.c_str());
}
