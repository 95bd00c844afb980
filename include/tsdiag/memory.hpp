#pragma once
#include <cstddef>
#include <string>

/// The memory of this process on the CPU: its share, and what becomes of what it frees, since fresh
/// pages of a layer's buffers cost a sixth of its time.
namespace tsdiag {

/// So many processes of one command run on this machine, and each may take an equal share of its
/// memory.  For the start of a program.
void share_machine_memory(int processes);
/// The share of this process in `machine_memory`, bytes.
std::size_t process_memory();
/// What to say behind that share: " for each of 4 processes"; nothing where there is only one.
std::string of_each_process();

/// Freed memory is kept for the next use: of tensors 64 MB beyond the peak of what they use, of
/// malloc 64 MB.  For the start of a program; without it malloc's own rules hold.
void keep_freed_memory();
/// Where memory is bounded: tensors and what is freed never take more than the peak of tensors,
/// malloc keeps 1 MB.
void return_freed_memory();

}  // namespace tsdiag
