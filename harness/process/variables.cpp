#include "harness/process/variables.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

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

void set(std::vector<std::string>& variables, const std::string& name, const std::string& value) {
  std::erase_if(variables, [&](const std::string& v) { return is_named(v, {name}); });
  variables.push_back(name + "=" + value);
}

constexpr const char* kVisibleDevices = "CUDA_VISIBLE_DEVICES";

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

std::vector<std::string> visible_devices(const fs::path& root) {
  std::vector<std::string> devices;
  if (const char* const listed = std::getenv(kVisibleDevices)) {
    std::istringstream words(listed);
    for (std::string word; std::getline(words, word, ',');) devices.push_back(word);
    return devices;
  }
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(root / "dev", none)) {
    const std::string name = entry.path().filename().string();
    constexpr std::string_view kDriver = "nvidia";
    const bool is_gpu = name.starts_with(kDriver) && name.size() > kDriver.size() &&
                        name.find_first_not_of("0123456789", kDriver.size()) == name.npos;
    if (is_gpu) devices.push_back(std::to_string(devices.size()));
  }
  return devices;
}

std::vector<std::string> seeing(const std::string& device, std::vector<std::string> variables) {
  set(variables, kVisibleDevices, device);
  return variables;
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
  for (const auto& [name, path] : own) set(variables, name, path.string());
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

}  // namespace attest
