// What tests/include_rules.cmake must refuse; never compiled.
#include <boost/math/distributions.hpp>

#include "../src/core/json.hpp"
#include "elsewhere.hpp"
#include "tsdiag/model.hpp"
#include "tsdiag/probe.hpp"
