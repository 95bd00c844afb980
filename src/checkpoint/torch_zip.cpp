#include "torch_zip.hpp"

#include <fmt/format.h>

#include <unordered_map>

#include "callables.hpp"
#include "torch_objects.hpp"

namespace tsdiag::checkpoint {
namespace {

bool sniff_torch_zip(Bytes head) { return !first_zip_name(head).empty(); }

/// The folder of all entries of torch.save, with its '/'.
std::string folder_of(const ZipArchive& archive) {
    for (const ZipEntry& entry : archive.entries()) {
        const std::size_t slash = entry.name.find('/');
        if (slash == std::string::npos) continue;
        const std::string folder = entry.name.substr(0, slash + 1);
        if (archive.find(folder + "data.pkl") != nullptr) return folder;
    }
    std::string names;
    for (std::size_t i = 0; i < std::min<std::size_t>(archive.entries().size(), 4); ++i)
        names += (i == 0 ? "" : ", ") + archive.entries()[i].name;
    refuse(
        archive.path(),
        fmt::format(
            "is a zip file of {} entries ({}), expected data.pkl in a folder, as torch.save writes "
            "it. Unpack it if it contains a checkpoint; save a TorchScript model as a state_dict.",
            archive.entries().size(), names));
}

bool is_big_endian(ZipArchive& archive, const std::string& folder) {
    const ZipEntry* entry = archive.find(folder + "byteorder");
    if (entry == nullptr) return false;  // absent before PyTorch 2.1
    const Payload order = archive.head(*entry, 16);
    if (text_of(order.bytes) == "big") return true;
    if (text_of(order.bytes) != "little")
        refuse(archive.path(),
               "has a byteorder that is neither 'little' nor 'big'. The file is damaged; save it "
               "again.");
    return false;
}

/// The entries `data/KEY`; deflated ones (of recompressed archives) are inflated once.
class ZipStorages {
  public:
    ZipStorages(ZipArchive& archive, std::string folder)
        : archive_(archive),
          folder_(std::move(folder)),
          big_endian_(is_big_endian(archive, folder_)) {}

    Storage operator()(const StorageId& id) {
        const ZipEntry* entry = archive_.find(folder_ + "data/" + id.key);
        if (entry == nullptr)
            refuse(archive_.path(), fmt::format("has no entry '{}data/{}', which a tensor uses. "
                                                "The file is damaged; save it again.",
                                                folder_, id.key));
        Payload& payload = payloads_[id.key];
        if (!payload.owner) payload = archive_.payload(*entry);
        const auto bytes = times(id.count, std::int64_t(id.width));
        if (!bytes || std::uint64_t(*bytes) > payload.bytes.size())
            refuse(archive_.path(),
                   fmt::format("storage '{}' has {} bytes, expected {} elements of {}. The file is "
                               "damaged; download or save it again.",
                               id.key, payload.bytes.size(), id.count, id.class_name));
        const Bytes held = id.width == 0 ? payload.bytes : payload.bytes.first(std::size_t(*bytes));
        return {held, payload.owner, big_endian_};
    }

  private:
    ZipArchive& archive_;
    std::string folder_;
    bool big_endian_;
    std::unordered_map<std::string, Payload> payloads_;
};

}  // namespace

std::unique_ptr<ListedCheckpoint> read_torch_zip(ZipArchive archive) {
    const std::string folder = folder_of(archive);
    const Payload data = archive.verified(*archive.find(folder + "data.pkl"));
    const Pickle pickle = read_pickle(data.bytes, archive.path());
    const bool script = archive.find(folder + "constants.pkl") != nullptr;
    auto listed = std::make_unique<ListedCheckpoint>(
        script ? "torch zip, TorchScript" : "torch zip", archive.path());
    list_objects(pickle, ZipStorages(archive, folder), archive.budget(), *listed);
    list_callables(pickle, *listed);
    return listed;
}

namespace {

std::unique_ptr<Checkpoint> open_torch_zip(const std::filesystem::path& path) {
    return read_torch_zip(ZipArchive(MappedFile::open(path)));
}

}  // namespace

extern const FormatEntry torch_zip = {"torch zip", "PyTorch since 1.6 (.pt, .pth, .ckpt, .bin)",
                                      sniff_torch_zip, open_torch_zip};

}  // namespace tsdiag::checkpoint
