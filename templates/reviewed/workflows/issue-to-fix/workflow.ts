import { AgentFailed, defineWorkflow, Human, Session, Workspace } from "@laufwerk/sdk";
import { createCodex } from "@laufwerk/sdk/harness/codex";
import { execution } from "../../execution";

interface Input {
  /** What is wrong, in words. */
  readonly issue: string;
  /** The command that succeeds when it is fixed. */
  readonly check: string;
}

interface Outcome {
  readonly status: "written" | "declined" | "unchanged";
  readonly repairs: number;
  readonly paths: readonly string[];
}

const MAX_REPAIRS = 3;
const CHECK_TIMEOUT = 10 * 60 * 1000;
const TURN_TIMEOUT = 30 * 60 * 1000;

// Codex, with the login of your ChatGPT subscription: "laufwerk prepare docker" puts it into an image, "laufwerk doctor" checks it.
const agent = execution.agent({
  harness: createCodex(),
});

export const workflow = defineWorkflow<Input, Outcome>({
  name: "issue-to-fix",
  input: {
    type: "object",
    properties: {
      issue: { type: "string", minLength: 1 },
      check: { type: "string", minLength: 1 },
    },
    required: ["issue", "check"],
    additionalProperties: false,
  },

  *run({ issue, check }) {
    const workspace = yield* Workspace.open({ source: ".", execution });
    const writer = yield* Session.open({ key: "writer", agent, workspace });

    yield* writer.ask({
      key: "fix",
      prompt: `Fix this issue in the current directory:\n\n${issue}\n\nIt is fixed when this command succeeds: ${check}\n`,
      timeout: TURN_TIMEOUT,
    });
    let checked = yield* writer.exec({ key: "check", command: check, timeout: CHECK_TIMEOUT });

    let repairs = 0;
    while (checked.exitCode !== 0 && repairs < MAX_REPAIRS) {
      repairs += 1;
      yield* writer.ask({
        key: `repair-${repairs}`,
        prompt: `The check still fails with exit code ${checked.exitCode}.\n\n${tail(checked.stdout + checked.stderr)}\n\nRepair it: ${issue}\n`,
        timeout: TURN_TIMEOUT,
      });
      checked = yield* writer.exec({ key: `check-${repairs}`, command: check, timeout: CHECK_TIMEOUT });
    }

    // A session that could still write would make what a person sees and what is written two things.
    yield* writer.close();
    if (checked.exitCode !== 0) {
      const why = ending(checked.stdout + checked.stderr);
      throw new Error(`the check still fails (repairs tried: ${repairs}), with exit code ${checked.exitCode}: ${check}\nIts output ends with:\n${why}`);
    }

    const { changes, text } = yield* Workspace.diff({ workspace });
    const paths = changes.map(change => change.path);
    if (paths.length === 0) return { status: "unchanged", repairs, paths };

    // A reviewer that can only read: what a person sees next, and what is written, is what it has read.
    const reviewer = yield* Session.open({ key: "reviewer", agent, workspace, access: "read-only" });
    let review: string;
    try {
      const report = yield* reviewer.ask({
        key: "review",
        prompt: `Review a change in the current directory, which you can only read. Say in a few sentences what is wrong, risky or missing, or that you found nothing.\n\nIt was made for this issue:\n\n${issue}\n\nThe change:\n\n${head(text)}\n`,
        timeout: TURN_TIMEOUT,
      });
      review = `The reviewing agent says, in its own words, which nobody has checked:\n\n${quoted(report)}`;
    } catch (e) {
      if (!(e instanceof AgentFailed)) throw e;
      // The work is there and its check succeeds: you decide without a review.
      review = `Nobody has reviewed it, for the reviewing agent failed:\n\n${quoted(e.message)}`;
    }
    yield* reviewer.close();

    const approved = yield* Human.confirm({
      key: "write-back",
      title: `Write ${paths.length} changed path${paths.length === 1 ? "" : "s"} back to the project?`,
      description: `The check succeeds (repairs needed: ${repairs}): ${check}\n\n${review}`,
      workspace,
    });
    if (!approved) return { status: "declined", repairs, paths };

    yield* Workspace.writeBack({ workspace });
    return { status: "written", repairs, paths };
  },
});

/** The beginning of a long difference: the reviewer has the files. */
function head(text: string): string {
  return text.length <= 40000 ? text : `${text.slice(0, 40000)}…`;
}

/** Every line is marked, so that none of an agent's words can pass for laufwerk's. */
function quoted(words: string): string {
  const some = words.length <= 4000 ? words : `${words.slice(0, 4000)}…`;
  return some.trim().split(/\r\n|[\n\v\f\r\u0085\u2028\u2029]/).map(line => `> ${line}`).join("\n");
}

/** The end of a long output is what says why. */
function tail(output: string): string {
  return output.length <= 4000 ? output : `…${output.slice(-4000)}`;
}

/** The last lines of an output, as a person gets them to read. */
function ending(output: string): string {
  return output.trimEnd().split("\n").slice(-5).map(line => `| ${line.slice(0, 200)}`).join("\n");
}
