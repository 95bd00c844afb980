#include "fuzz.hpp"
#include "support/packers.hpp"
#include "tsdiag/families.hpp"
#include "tsdiag/run.hpp"

/// A file of the format TSDIAG_FORMAT, whatever its first bytes: opened, unwrapped, recognised,
/// summed, with scales, in every packing and without, and read as a trace.

using namespace tsdiag;

namespace {

const FormatEntry& format() {
    for (const FormatEntry* entry : formats())
        if (entry->name == TSDIAG_FORMAT) return *entry;
    std::abort();
}

}  // namespace

void examine(std::string_view input) {
    const std::string path = fuzz::folder().write("model", input);
    std::unique_ptr<Checkpoint> file;
    if (!fuzz::accepts([&] { file = format().open(path); })) return;
    fuzz::accepts([&] { fuzz::read_all(*file); });
    fuzz::accepts([&] {
        if (is_trace(*file)) summarise_trace(*file);
    });
    std::vector<std::string> notes;
    if (!fuzz::accepts([&] { file = unwrap(std::move(file), &notes); })) return;
    fuzz::accepts([&] { detect(*file, {}); });
    Json config = Json::parse(
        R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [2, 3]}})", "");
    const std::shared_ptr<const Checkpoint> whole = std::move(file);
    std::shared_ptr<const Checkpoint> scaled;
    if (fuzz::accepts([&] { scaled = apply_scales(whole, config, notes); }))
        fuzz::accepts([&] { fuzz::read_all(*scaled); });
    static const std::vector<test::Packer> packers = test::all_packers();
    for (const test::Packer& packer : packers) {
        config = Json::Object{{"quantization_config", Json::parse(packer.quantised, "")}};
        std::shared_ptr<const Checkpoint> packed;
        if (fuzz::accepts([&] { packed = apply_packing(whole, config, notes); }) && packed != whole)
            fuzz::accepts([&] { fuzz::read_all(*packed); });
    }
}
