// Requests and answers as JSON, code as bytes.
#include "autotune/workers/trial_messages.h"

#include "support/error.h"

namespace nestor {
namespace {

using nlohmann::json;

json bytes_to_json(const std::string& bytes) { return json::binary({bytes.begin(), bytes.end()}); }

std::string bytes_from_json(const json& json) {
  const auto& bytes = json.get_binary();
  return {bytes.begin(), bytes.end()};
}

json outcome_to_json(const TrialOutcome& outcome) {
  return {{"status", static_cast<int>(outcome.status)},
          {"reason", bytes_to_json(outcome.reason)},
          {"samples_ms", outcome.samples_ms},
          {"median_ms", outcome.median_ms},
          {"max_error", outcome.max_error},
          {"compile_ms", outcome.compile_ms},
          {"report", outcome.report},
          {"outside", outcome.outside}};
}

TrialOutcome outcome_from_json(const json& json) {
  TrialOutcome outcome;
  outcome.status = static_cast<TrialStatus>(json.at("status").get<int>());
  outcome.reason = bytes_from_json(json.at("reason"));
  outcome.samples_ms = json.at("samples_ms").get<std::vector<double>>();
  outcome.median_ms = json.at("median_ms");
  outcome.max_error = json.at("max_error");
  outcome.compile_ms = json.at("compile_ms");
  outcome.report = json.at("report");
  outcome.outside = json.at("outside");
  return outcome;
}

json compiled_to_json(const CompiledTrial& compiled) {
  return {{"architecture", compiled.kernel.architecture},
          {"code", bytes_to_json(compiled.kernel.code)},
          {"recipe", compiled.kernel.recipe},
          {"hash", compiled.kernel.hash},
          {"binary", bytes_to_json(compiled.binary)},
          {"report", compiled.report},
          {"compile_ms", compiled.compile_ms},
          {"periods", compiled.periods},
          {"certificate", compiled.certificate},
          {"least_ms", compiled.least_ms}};
}

CompiledTrial compiled_from_json(const json& json) {
  return {{json.at("architecture"), bytes_from_json(json.at("code")), json.at("recipe"), json.at("hash")},
          bytes_from_json(json.at("binary")),
          json.at("report"),
          json.at("compile_ms"),
          json.at("periods"),
          json.at("certificate"),
          json.at("least_ms")};
}

/// One form for each kind of answer.
struct AnswerToJson {
  json operator()(const WorkerReady&) const { return {{"ready", true}}; }
  json operator()(const WorkerRefusal& refusal) const {
    return {{"refusal", refusal.reason}, {"fault", static_cast<int>(refusal.fault)}};
  }
  json operator()(const TrialEnd& end) const { return {{"outcome", outcome_to_json(end.outcome)}, {"lost", end.lost}}; }
  json operator()(const CompiledTrial& compiled) const { return {{"compiled", compiled_to_json(compiled)}}; }
};

}  // namespace

json request_to_json(const TrialRequest& request) {
  json steps = json::array();
  for (const Step& step : request.job.steps) steps.push_back(step_to_json(step));
  json message{{"steps", steps}, {"best_ms", request.job.best_ms}, {"must_finish", request.job.must_finish}};
  if (request.compiled) message["compiled"] = compiled_to_json(*request.compiled);
  return message;
}

TrialRequest request_from_json(const json& json) {
  TrialRequest request;
  for (const auto& step : json.at("steps")) request.job.steps.push_back(step_from_json(step));
  request.job.best_ms = json.at("best_ms");
  request.job.must_finish = json.at("must_finish");
  if (json.contains("compiled")) request.compiled = compiled_from_json(json.at("compiled"));
  return request;
}

json answer_to_json(const WorkerAnswer& answer) { return std::visit(AnswerToJson{}, answer); }

WorkerAnswer answer_from_json(const json& json) {
  if (json.contains("ready")) return WorkerReady{};
  if (json.contains("refusal"))
    return WorkerRefusal{json.at("refusal"), static_cast<WorkerRefusal::Fault>(json.at("fault").get<int>())};
  if (json.contains("outcome")) return TrialEnd{outcome_from_json(json.at("outcome")), json.at("lost")};
  if (json.contains("compiled")) return compiled_from_json(json.at("compiled"));
  internal_error("a worker sent what is no answer");
}

}  // namespace nestor
