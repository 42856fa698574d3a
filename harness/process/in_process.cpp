#include "harness/process/in_process.h"

#include "harness/process/plugin_host.h"

namespace attest {

Reply InProcessExecutor::execute(nlohmann::json request) {
  Reply reply;
  const auto locate = [this](const std::string&, const nlohmann::json& tensor) {
    std::byte* memory = tensor.at("memory") == "output" ? arena_->outputs() : arena_->inputs();
    return static_cast<void*>(memory + tensor.at("offset").get<std::size_t>());
  };
  reply.body = answer(plugin_, request, locate, [this] { is_ready(); });
  return reply;
}

Arena& InProcessExecutor::arena(std::size_t bytes) {
  if (!arena_ || arena_->capacity() < bytes) arena_ = std::make_unique<Arena>(bytes);
  return *arena_;
}

}  // namespace attest
