#include <fmt/format.h>

#include <mutex>
#include <unordered_map>

#include "listed.hpp"
#include "npy.hpp"
#include "zip.hpp"

namespace tsdiag::checkpoint {
namespace {

constexpr std::string_view suffix = ".npy";

/// Stored arrays are used in place; deflated ones are inflated at the first access and cached.
class NpzCheckpoint final : public Checkpoint {
  public:
    explicit NpzCheckpoint(std::shared_ptr<const MappedFile> file) : archive_(std::move(file)) {
        for (const ZipEntry& entry : archive_.entries()) {
            if (entry.name.ends_with('/')) continue;
            if (!entry.name.ends_with(suffix))
                refuse(source(), fmt::format("contains '{}', expected only arrays (.npy). Save "
                                             "only arrays with numpy.savez.",
                                             entry.name));
            const std::string name = entry.name.substr(0, entry.name.size() - suffix.size());
            const Payload head = archive_.head(entry, longest_npy_header);
            NpyHeader header = read_npy_header(head.bytes, entry.size,
                                               fmt::format("{}: array '{}'", source(), name));
            arrays_.emplace(name, Array{&entry, std::move(header)});
            names_.push_back(name);
        }
    }

    const std::vector<std::string>& names() const override { return names_; }
    const Json& metadata() const override { return metadata_; }
    std::string_view format() const override { return "npz"; }
    std::string source() const override { return archive_.path(); }
    bool has(std::string_view name) const override { return arrays_.contains(std::string(name)); }

    RawTensor tensor(std::string_view name) const override {
        const auto found = arrays_.find(std::string(name));
        if (found == arrays_.end()) unknown_tensor(*this, name);
        const Array& array = found->second;
        const std::lock_guard<std::mutex> lock(mutex_);
        Payload& payload = payloads_[found->first];
        if (!payload.owner) payload = archive_.payload(*array.entry);
        return npy_tensor(array.header, payload.bytes, payload.owner);
    }

  private:
    struct Array {
        const ZipEntry* entry;
        NpyHeader header;
    };
    mutable ZipArchive archive_;  // inflates within its budget
    std::vector<std::string> names_;
    std::unordered_map<std::string, Array> arrays_;
    Json metadata_ = Json::Object();
    mutable std::mutex mutex_;
    mutable std::unordered_map<std::string, Payload> payloads_;
};

bool sniff_npz(Bytes head) { return first_zip_name(head).ends_with(suffix); }

std::unique_ptr<Checkpoint> open_npz(const std::filesystem::path& path) {
    return std::make_unique<NpzCheckpoint>(MappedFile::open(path));
}

bool sniff_npy(Bytes head) { return starts_with(head, npy_magic); }

std::unique_ptr<Checkpoint> open_npy(const std::filesystem::path& path) {
    const auto file = MappedFile::open(path);
    auto listed = std::make_unique<ListedCheckpoint>("npy", file->path());
    NpyHeader header = read_npy_header(file->bytes(), file->bytes().size(), file->path());
    listed->add("array", npy_tensor(std::move(header), file->bytes(), file));
    return listed;
}

}  // namespace

extern const FormatEntry npz = {"npz", "NumPy archive of arrays", sniff_npz, open_npz};

extern const FormatEntry npy = {"npy", "one NumPy array", sniff_npy, open_npy};

}  // namespace tsdiag::checkpoint
