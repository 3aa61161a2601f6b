// Encoding of jobs and outcomes, and whole-message transfer.
#include "autotune/workers/trial_messages.h"

#include "support/error.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>

namespace nestor {
namespace {

constexpr std::uint64_t kLongestMessage = std::uint64_t{1} << 28;

nlohmann::json bytes_to_json(const std::string& bytes) { return nlohmann::json::binary({bytes.begin(), bytes.end()}); }

std::string bytes_from_json(const nlohmann::json& json) {
  const auto& bytes = json.get_binary();
  return {bytes.begin(), bytes.end()};
}

nlohmann::json kernel_to_json(const KernelRecord& kernel) {
  return {{"architecture", kernel.architecture},
          {"code", bytes_to_json(kernel.code)},
          {"recipe", kernel.recipe},
          {"hash", kernel.hash}};
}

KernelRecord kernel_from_json(const nlohmann::json& json) {
  return {json.at("architecture"), bytes_from_json(json.at("code")), json.at("recipe"), json.at("hash")};
}

bool transfer_all(std::size_t size, const std::function<ssize_t(std::size_t)>& transfer) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t moved = transfer(done);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) return false;
    done += static_cast<std::size_t>(moved);
  }
  return true;
}

}  // namespace

nlohmann::json job_to_json(const TrialJob& job) {
  nlohmann::json steps = nlohmann::json::array();
  for (const Step& step : job.steps) steps.push_back(step_to_json(step));
  return {{"steps", steps}, {"best_ms", job.best_ms}, {"must_finish", job.must_finish}};
}

TrialJob job_from_json(const nlohmann::json& json) {
  TrialJob job;
  for (const auto& step : json.at("steps")) job.steps.push_back(step_from_json(step));
  job.best_ms = json.at("best_ms");
  job.must_finish = json.at("must_finish");
  return job;
}

nlohmann::json outcome_to_json(const TrialOutcome& outcome) {
  nlohmann::json json{{"status", to_string(outcome.status)},
                      {"reason", bytes_to_json(outcome.reason)},
                      {"samples_ms", outcome.samples_ms},
                      {"median_ms", outcome.median_ms},
                      {"max_error", outcome.max_error},
                      {"compile_ms", outcome.compile_ms},
                      {"report", outcome.report}};
  if (outcome.kernel) json["kernel"] = kernel_to_json(*outcome.kernel);
  return json;
}

TrialOutcome outcome_from_json(const nlohmann::json& json) {
  TrialOutcome outcome;
  const auto status = trial_status_from(json.at("status").get<std::string>());
  if (!status) internal_error("worker sent the unknown status '{}'", json.at("status").get<std::string>());
  outcome.status = *status;
  outcome.reason = bytes_from_json(json.at("reason"));
  outcome.samples_ms = json.at("samples_ms").get<std::vector<double>>();
  outcome.median_ms = json.at("median_ms");
  outcome.max_error = json.at("max_error");
  outcome.compile_ms = json.at("compile_ms");
  outcome.report = json.at("report");
  if (json.contains("kernel")) outcome.kernel = kernel_from_json(json.at("kernel"));
  return outcome;
}

nlohmann::json compiled_to_json(const CompiledTrial& compiled) {
  return {{"kernel", kernel_to_json(compiled.kernel)},
          {"binary", bytes_to_json(compiled.binary)},
          {"report", compiled.report},
          {"compile_ms", compiled.compile_ms},
          {"periods", compiled.periods}};
}

CompiledTrial compiled_from_json(const nlohmann::json& json) {
  return {kernel_from_json(json.at("kernel")), bytes_from_json(json.at("binary")), json.at("report"), json.at("compile_ms"),
          json.at("periods")};
}

bool send_message(int socket, const nlohmann::json& message) {
  const std::vector<std::uint8_t> body = nlohmann::json::to_cbor(message);
  const std::uint64_t length = body.size();
  const auto put = [&](const void* data, std::size_t size) {
    const char* bytes = static_cast<const char*>(data);
    return transfer_all(size, [&](std::size_t done) { return send(socket, bytes + done, size - done, MSG_NOSIGNAL); });
  };
  return put(&length, sizeof length) && put(body.data(), body.size());
}

std::optional<nlohmann::json> receive_message(int socket) {
  const auto take = [&](void* data, std::size_t size) {
    char* bytes = static_cast<char*>(data);
    return transfer_all(size, [&](std::size_t done) { return recv(socket, bytes + done, size - done, 0); });
  };
  std::uint64_t length = 0;
  if (!take(&length, sizeof length) || length > kLongestMessage) return std::nullopt;
  std::vector<std::uint8_t> body(length);
  if (!take(body.data(), body.size())) return std::nullopt;
  nlohmann::json message = nlohmann::json::from_cbor(body, true, false);
  if (message.is_discarded()) return std::nullopt;
  return message;
}

}  // namespace nestor
