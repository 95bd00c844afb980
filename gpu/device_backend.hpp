#pragma once
#include <memory>

#include "tsdiag/backend.hpp"

namespace tsdiag::gpu {

/// The backend of device `index`, on the linked kernels.hpp and runtime.hpp.
std::unique_ptr<Backend> make_backend(int index, Products products = Products::exact);

}  // namespace tsdiag::gpu
