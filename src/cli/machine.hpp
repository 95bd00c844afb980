#pragma once
#include <string>

#include "tsdiag/run_record.hpp"

/// What is said of the machine and the time of a run.
namespace tsdiag::cli {

/// The name of the processor: "AMD EPYC"; empty where the system does not say it.
std::string processor();

/// The time, or that of SOURCE_DATE_EPOCH, whose files are then the same on any day; the commit of
/// this program, and the processor.
RunRecord::Measured measured_now();

}  // namespace tsdiag::cli
