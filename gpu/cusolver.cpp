#include "cusolver.hpp"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <link.h>

#include <climits>
#include <string>

/// Opens cuSOLVER by the name that the linker would have recorded.
namespace tsdiag::gpu {
namespace {

/// "libcublas.so.13": libraries of CUDA have their major version in their names.
std::string name_of_library(const char* library, int major) {
    return fmt::format("lib{}.so.{}", library, major);
}

/// The folder of the cuBLAS of this process, with a final '/'; empty where that is not known.
std::string folder_of_cublas() {
    void* cublas =
        dlopen(name_of_library("cublas", CUBLAS_VER_MAJOR).c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (cublas == nullptr) return {};
    char folder[PATH_MAX] = "";
    const bool known = dlinfo(cublas, RTLD_DI_ORIGIN, folder) == 0;
    dlclose(cublas);  // only this reference to it
    return known ? std::string(folder) + '/' : std::string();
}

std::string cuda_release() {
    return fmt::format("{}.{}", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

/// From the folder of cuBLAS, else where the system finds libraries of this one: LD_LIBRARY_PATH,
/// the RUNPATH, which is CUDA's folder of the build, and the system's folders.
void* open_library() {
    const std::string name = name_of_library("cusolver", CUSOLVER_VER_MAJOR);
    constexpr int how = RTLD_NOW | RTLD_LOCAL;
    std::string why;
    for (const std::string& folder : {folder_of_cublas(), std::string()}) {
        if (void* found = dlopen((folder + name).c_str(), how)) return found;
        why += (why.empty() ? "" : "; ") + std::string(dlerror());
    }
    throw no_cusolver(why, cuda_release());
}

template <class Function>
void find(Function& function, void* library, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) throw no_cusolver(dlerror(), cuda_release());
}

Cusolver open_functions() {
    void* library = open_library();
    Cusolver out;
#define TSDIAG_FIND(name) find(out.name, library, "cusolverDn" #name)
    TSDIAG_EACH_OF_CUSOLVER(TSDIAG_FIND);
#undef TSDIAG_FIND
    return out;
}

}  // namespace

const Cusolver& cusolver() {
    static const Cusolver opened = open_functions();
    return opened;
}

}  // namespace tsdiag::gpu
