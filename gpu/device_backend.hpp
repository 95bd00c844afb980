#pragma once
#include <memory>

#include "tsdiag/backend.hpp"

namespace tsdiag::gpu {

/// The backend of device `index`: kernels.hpp and runtime.hpp, whichever are linked.
std::unique_ptr<Backend> make_backend(int index, Products products = Products::exact);

}  // namespace tsdiag::gpu
