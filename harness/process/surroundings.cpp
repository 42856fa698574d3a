#include "harness/process/surroundings.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>

#include "harness/process/remove_tree.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

bool is_named(std::string_view variable, const std::vector<std::string>& names) {
  const std::string_view name = variable.substr(0, variable.find('='));
  return std::any_of(names.begin(), names.end(), [&](const std::string& known) {
    return known.ends_with('*')
               ? name.starts_with(std::string_view(known).substr(0, known.size() - 1))
               : name == known;
  });
}

}  // namespace

const std::vector<std::string>& passed_names() {
  static const std::vector<std::string> kNames = {
      "PATH",     "LD_*",         "LANG",         "LANGUAGE",      "LC_*",        "TZ",
      "USER",     "LOGNAME",      "TERM",         "PYTHON*",       "VIRTUAL_ENV", "CONDA_*",
      "CUDA_*",   "NVIDIA_*",     "NCCL_*",       "ROCR_*",        "ROCM_*",      "HIP_*",
      "HSA_*",    "OMP_*",        "GOMP_*",       "KMP_*",         "MKL_*",       "OPENBLAS_*",
      "XLA_*",    "JAX_*",        "TORCH*",       "PYTORCH_*",     "TRITON_*",    "GLIBC_TUNABLES",
      "MALLOC_*", "ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"};
  return kNames;
}

std::vector<std::string> passed_variables(const std::vector<std::string>& more_names) {
  std::vector<std::string> passed;
  for (char** variable = environ; *variable; ++variable) {
    if (is_named(*variable, passed_names()) || is_named(*variable, more_names)) {
      passed.emplace_back(*variable);
    }
  }
  return passed;
}

std::vector<std::string> at_home(std::vector<std::string> variables, const fs::path& home) {
  const std::vector<std::pair<std::string, fs::path>> own = {
      {"HOME", home},
      {"TMPDIR", home / "tmp"},
      {"XDG_CACHE_HOME", home / ".cache"},
      {"XDG_CONFIG_HOME", home / ".config"},
      {"TRITON_CACHE_DIR", home / ".triton/cache"},
      {"TORCHINDUCTOR_CACHE_DIR", home / ".cache/inductor"},
      {"CUDA_CACHE_PATH", home / ".nv/ComputeCache"}};
  for (const auto& [name, path] : own) {
    std::erase_if(variables, [&name = name](const auto& v) { return is_named(v, {name}); });
    variables.push_back(name + "=" + path.string());
  }
  const auto says = [&](const char* name) {
    return std::any_of(variables.begin(), variables.end(),
                       [&](const std::string& v) { return is_named(v, {name}); });
  };
  // Whoever asks the system for the name of its user may get none.
  for (const char* name : {"USER", "LOGNAME"}) {
    if (!says(name)) variables.push_back(std::string(name) + "=nobody");
  }
  const char* const old_home = std::getenv("HOME");
  if (old_home && !says("PYTHONUSERBASE")) {
    variables.push_back("PYTHONUSERBASE=" + (fs::path(old_home) / ".local").string());
  }
  return variables;
}

Homes::~Homes() {
  if (!keep_ && !folder_.empty()) remove_tree(folder_);  // what cannot be removed stays
}

fs::path Homes::of(const std::vector<std::string>& command, Isolation isolation, uid_t user) {
  const std::lock_guard lock(mutex_);
  if (folder_.empty()) {
    std::string name = (fs::temp_directory_path() / "attest-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::system_error(errno, std::generic_category(), name);
    folder_ = name;
    fs::permissions(folder_, fs::perms::owner_all | fs::perms::group_exec | fs::perms::others_exec);
  }
  fs::path& home = homes_[command];
  if (!home.empty()) return home;
  home = folder_ / std::to_string(homes_.size());
  for (const fs::path& each : {home, home / "tmp"}) {
    fs::create_directory(each);
    fs::permissions(each, fs::perms::owner_all);
    // That user's who it is for.
    if (has_other_user(isolation) && chown(each.c_str(), user, user) != 0) {
      throw std::system_error(errno, std::generic_category(), each.string());
    }
  }
  return home;
}

void hide(Surroundings& surroundings, const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    surroundings.hidden_files.push_back(file);
    const std::string folder = fs::path(file).parent_path().string();
    struct stat about {};
    if (stat(folder.c_str(), &about) != 0 || (about.st_mode & S_ISVTX) != 0) continue;
    std::vector<std::string>& kept = surroundings.read_only;
    if (std::find(kept.begin(), kept.end(), folder) == kept.end()) kept.push_back(folder);
  }
}

}  // namespace attest
