#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "layout.hpp"
#include "tsdiag/backend.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/output.hpp"
#include "units_file.hpp"

namespace tsdiag {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_pending = 64 << 20;  // bytes
constexpr double first_write = 1;               // seconds
constexpr double share_lost = 0.01;             // of the time so far

std::string host_name() {
    std::array<char, 256> name{};
    if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "host";
    std::string text(name.data());
    for (char& c : text)
        if (std::isalnum((unsigned char)(c)) == 0 && c != '.') c = '-';
    return text;
}

std::string worker_name() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return fmt::format("{}-{}-{:x}", host_name(), getpid(),
                       std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

std::string short_digest(const std::string& text) { return sha256(text).substr(0, 32); }

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// What processes of a job write: its folder may have got other files.
std::vector<fs::path> files_of_job(const fs::path& folder) {
    std::error_code failed;
    std::vector<fs::path> files;
    for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed))
        if (units::is_of_a_job(at->path())) files.push_back(at->path());
    return files;
}

bool holds_units(const fs::path& folder) {
    return std::ranges::any_of(files_of_job(folder), [](const fs::path& file) {
        return file.extension() == units::file_ending;
    });
}

void remove_job(const fs::path& folder) {
    std::error_code failed;
    for (const fs::path& file : files_of_job(folder)) fs::remove(file, failed);
    fs::remove(folder, failed);
}

/// At `now`, nobody has written there for so long that the command has been given up: other
/// settings, another version.
bool is_stale(const fs::path& folder, fs::file_time_type now) {
    constexpr auto stale = std::chrono::days(14);
    std::error_code failed;
    fs::file_time_type last = fs::last_write_time(folder, failed);
    for (const fs::path& file : files_of_job(folder))
        last = std::max(last, fs::last_write_time(file, failed));
    return !failed && now - last > stale;
}

}  // namespace

std::string JobTitle::settings_digest() const {
    return short_digest(fmt::format("{}\n{}\n{}", TSDIAG_VERSION, units::format, settings));
}
std::string JobTitle::digest() const { return short_digest(settings_digest() + "\n" + numerics); }

std::string numerics_of(const std::string& device) {
    const Backend& backend = open_backend(device);
    std::string text = backend.description();
    if (!backend.host_memory()) {  // without the memory that is free at the moment
        const std::size_t begin = text.find(" ("), end = text.find(" free)", begin);
        if (end != std::string::npos) text.erase(begin, end + std::string(" free)").size() - begin);
        return text;
    }
    text = text.substr(text.find(", ") + 2);  // without the number of threads
    for (const char* variable : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"})
        if (const char* set = std::getenv(variable)) text += fmt::format(", {}={}", variable, set);
    return text;
}

fs::path units_folder(const fs::path& folder) {
    std::error_code failed;
    fs::path path = fs::weakly_canonical(folder, failed);
    if (failed) path = fs::absolute(folder).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    return path.parent_path() / ("." + path.filename().string() + units::ending);
}

UnitStore::UnitStore(const fs::path& result, JobTitle title)
    : folder_(units_folder(place_of_folder(result))),
      title_(std::move(title)),
      digest_(title_.digest()),
      worker_(worker_name()),
      start_(Clock::now()),
      written_(start_) {
    folder_ /= digest_;
    learn_begin();
}

UnitStore::~UnitStore() {
    std::error_code failed;
    if (made_ && best_effort_ && !holds_units(folder_)) remove_job(folder_);
    fs::remove(folder_, failed);  // only where they are empty
    fs::remove(folder_.parent_path(), failed);
}

Index UnitStore::read() {
    const std::lock_guard lock(mutex_);
    std::error_code failed;
    std::vector<fs::path> files;
    for (fs::directory_iterator at(folder_, failed), end; !failed && at != end;
         at.increment(failed))
        if (at->path().extension() == units::file_ending) files.push_back(at->path());
    std::ranges::sort(files);
    for (const fs::path& file : files) read_file(file);
    return known();
}

void UnitStore::read_file(const fs::path& file) {
    auto from = std::make_unique<Read>();
    std::vector<units::Unit> all;
    try {
        from->bytes = file_text(file, "finished units");
        all = units::parse(from->bytes, file.string(), digest_, from->host);
    } catch (const FormatError&) {
        return;  // its units are computed again
    }
    records_.reserve(records_.size() + all.size());
    for (const units::Unit& unit : all) {
        const auto [at, is_new] = records_.try_emplace({unit.stage, unit.unit, unit.part},
                                                       Known{unit.record, files_.size()});
        if (is_new && unit.part < 0) ++known_;
        if (is_new || at->second.record == unit.record) continue;
        throw Error(fmt::format(
            "{}: {} and {} have different results of unit {} of stage {}, expected the same bytes; "
            "one of the machines computes wrongly. Remove that folder and run the command again.",
            folder_.string(), files_[at->second.file]->host, from->host, unit.unit, unit.stage));
    }
    files_.push_back(std::move(from));
}

std::optional<std::string_view> UnitStore::find(Index stage, Index unit, Index part) const {
    const std::lock_guard lock(mutex_);
    const auto at = records_.find({stage, unit, part});
    if (at == records_.end()) return std::nullopt;
    return at->second.record;
}

void UnitStore::stage(Index stage, Index count) {
    const std::lock_guard lock(mutex_);
    stages_[stage] = count;
}

void UnitStore::keep(Index stage, Index unit, std::string_view record, double seconds) {
    const std::lock_guard lock(mutex_);
    units::append(pending_, {.stage = stage, .unit = unit, .seconds = seconds, .record = record});
    ++pending_count_;
    std::erase_if(pending_parts_, [&](const auto& one) {
        return one.first.stage == stage && one.first.unit == unit;
    });
    ++computed_;
    busy_ += seconds;
    write_where_due();
}

void UnitStore::keep_part(Index stage, Index unit, Index part, std::string_view record) {
    const std::lock_guard lock(mutex_);
    pending_parts_.emplace_back(Key{stage, unit, part}, record);
    write_where_due();
}

void UnitStore::write_where_due() {
    const double due = std::max(first_write, share_lost * seconds_since(start_));
    if (pending_.size() < most_pending && seconds_since(written_) < due) return;
    write_pending();
    write_worker("running");
}

/// That of the processes before this one.
void UnitStore::learn_begin() {
    for (const units::JobFile& job : units::jobs_in(folder_.parent_path()))
        if (job.folder == folder_ && !job.begun.date.empty()) title_.begun = job.begun;
}

/// Another process that ends may remove the folder while it is empty, and so what was just made.
void UnitStore::make_folder() {
    constexpr int most_removals = 100;
    std::error_code failed;
    if (made_ && fs::exists(folder_ / units::job_file, failed)) return;
    learn_begin();
    const units::JobFile job{.version = TSDIAG_VERSION,
                             .words = title_.words,
                             .directory = fs::current_path(failed).string(),
                             .settings = title_.settings_digest(),
                             .numerics = title_.numerics,
                             .begun = title_.begun};
    // Under a name of its own first: processes of other machines may write it, too.
    const fs::path own = folder_ / (worker_ + ".tmp");
    for (int removals = 0;; ++removals) {
        fs::create_directories(folder_, failed);
        const bool removed = failed == std::errc::no_such_file_or_directory;
        if (failed && !(removed && removals < most_removals))
            throw Error(fmt::format("{}: cannot be created ({}); choose another --out.",
                                    folder_.string(), failed.message()));
        if (removed) continue;
        try {
            write_atomically(own, fields_json(job).dump(2) + "\n");
            break;
        } catch (const Error&) {
            if (fs::exists(folder_, failed) || removals == most_removals) throw;
        }
    }
    fs::rename(own, folder_ / units::job_file);
    made_ = true;
}

void UnitStore::unless_given_up(const std::function<void()>& write) {
    if (gave_up_) return;
    try {
        write();
    } catch (const Error&) {
        if (!best_effort_) throw;
        gave_up_ = true;
    }
}

void UnitStore::write_pending() {
    written_ = Clock::now();
    for (const auto& [key, record] : pending_parts_)
        units::append(pending_, {key.stage, key.unit, key.part, 0, record});
    pending_count_ += std::ssize(pending_parts_);
    pending_parts_.clear();
    if (pending_count_ == 0) return;
    unless_given_up([&] {
        make_folder();
        write_atomically(folder_ / fmt::format("{}-{}{}", worker_, sequence_, units::file_ending),
                         units::whole(digest_, host_name(), pending_count_, pending_));
        ++sequence_;
    });
    pending_.clear();
    pending_count_ = 0;
}

void UnitStore::write_worker(std::string_view state) {
    units::WorkerFile worker;
    worker.host = host_name();
    worker.state = state;
    worker.pid = getpid();
    worker.units = computed_;
    worker.threads = omp_get_max_threads();
    worker.busy = busy_;
    worker.time = units::seconds_now();
    for (const auto& [stage, count] : stages_) worker.stages.push_back({stage, count});
    unless_given_up([&] {
        make_folder();
        write_atomically(folder_ / (worker_ + units::worker_ending),
                         fields_json(worker).dump() + "\n");
    });
}

void UnitStore::flush(std::string_view state) {
    const std::lock_guard lock(mutex_);
    if (state == "failed" && best_effort_ && !made_ && seconds_since(start_) < first_write) return;
    if (state == "failed") best_effort_ = true;  // of a folder without units nothing stays
    write_pending();
    if (made_ || (state == "done" && !best_effort_)) write_worker(state);
}

void UnitStore::remove() {
    const std::lock_guard lock(mutex_);
    std::error_code failed;
    const fs::path jobs = folder_.parent_path();
    // Ages are compared with the time of the file system, which the clock of this machine may not
    // tell: that of the last change in `jobs`.
    fs::create_directory(folder_, failed);
    remove_job(folder_);
    const fs::file_time_type now = fs::last_write_time(jobs, failed);
    for (fs::directory_iterator at(jobs, failed), end; !failed && at != end; at.increment(failed)) {
        std::error_code unknown;
        if (at->is_directory(unknown) && is_stale(at->path(), now)) remove_job(at->path());
    }
    fs::remove(jobs, failed);
    made_ = false;
}

std::vector<std::string> UnitStore::other_numerics() const {
    std::vector<std::string> found;
    for (const units::JobFile& job : units::jobs_in(folder_.parent_path()))
        if (job.settings == title_.settings_digest() && job.numerics != title_.numerics)
            found.push_back(job.numerics);
    return found;
}

}  // namespace tsdiag
