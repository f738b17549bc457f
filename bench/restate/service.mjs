// The yardstick "100 durable steps" (restate.go starts it): a Restate server with its own defaults, and a service of one
// handler that does as many steps as it is asked for, each without an effect. Once both are ready it prints the path of the
// socket that takes calls. It ends, with the server, when its stdin does.
//
//   node service.mjs TOOLS SERVER DATA   the directory with node_modules, the program, an empty directory
import { spawn } from "node:child_process";
import * as http from "node:http";
import * as http2 from "node:http2";
import { createRequire } from "node:module";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";

const [tools, program, data] = process.argv.slice(2);
const restate = createRequire(join(tools, "service.js"))("@restatedev/restate-sdk");

const steps = restate.service({
  name: "steps",
  handlers: {
    run: async (ctx, n) => {
      let done = 0;
      for (let i = 0; i < n; i++) done += await ctx.run("step", () => 1);
      return done;
    },
  },
});

const node = "bench";
const server = spawn(program, ["--no-logo", "--listen-mode=unix", "--node-name=" + node, "--base-dir=" + data], {
  env: { ...process.env, RESTATE_DISABLE_TELEMETRY: "true" },
  stdio: ["ignore", "ignore", "ignore"],
});
const end = (code, why) => {
  if (why) console.error(why);
  server.kill("SIGKILL");
  process.exit(code);
};
server.on("error", (e) => end(1, `${program}: ${e.message}`));
server.on("exit", (code, signal) => end(1, `the server ended: ${code ?? signal}`));
process.stdin.on("end", () => end(0)).resume();

function post(socketPath, path, body) {
  return new Promise((done) => {
    const headers = { "content-type": "application/json" };
    const request = http.request({ socketPath, path, method: "POST", headers }, (answer) => {
      answer.resume().on("end", () => done(answer.statusCode));
    });
    request.on("error", (e) => done(e.message)).end(JSON.stringify(body));
  });
}

// A server that has just started refuses some of what it is asked.
async function until(socketPath, path, body) {
  for (let last, tries = 0; ; tries++) {
    last = await post(socketPath, path, body);
    if (last >= 200 && last < 300) return;
    if (tries === 600) end(1, `${path}: ${last}`);
    await setTimeout(100);
  }
}

const service = http2.createServer(restate.createEndpointHandler({ services: [steps], logger: () => {} }));
service.listen(0, "127.0.0.1", async () => {
  const at = (name) => join(data, node, name + ".sock");
  await until(at("admin"), "/deployments", { uri: `http://127.0.0.1:${service.address().port}` });
  await until(at("ingress"), "/steps/run", 0);
  console.log(at("ingress"));
});
