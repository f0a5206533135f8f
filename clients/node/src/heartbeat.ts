// Extends the lease of a claim, and knows when it may have expired.

const now = (): number => performance.now(); // monotonic

/**
 * A beat comes at a third of the lease; after a failed one, the next comes a tenth of the lease later. A failed
 * beat does not tell who owns the claim, so the work continues until the lease may have expired. That is
 * counted from the moment at which the last successful request was sent, so our count ends before the server's.
 */
export class Heartbeat {
  readonly #controller = new AbortController();
  #beat: NodeJS.Timeout | undefined;
  #end: NodeJS.Timeout | undefined;
  #stopped = false;
  #lost = false;
  #until = 0;

  /**
   * `extend` sends one beat; `isLost` tells whether its error means that another request has the claim.
   * `sent` is when the request that began the claim was sent.
   */
  constructor(
    readonly lease: number,
    sent: number,
    readonly extend: (limit: number) => Promise<unknown>,
    readonly isLost: (error: unknown) => boolean,
    readonly onLost: (reason: Error) => void,
    readonly lostError: (message: string, cause?: unknown) => Error,
  ) {
    this.succeeded(sent);
    this.#next(lease / 3);
  }

  static now = now;

  /** Aborted when the work must stop. */
  get signal(): AbortSignal { return this.#controller.signal; }

  get lost(): boolean { return this.#lost; }

  /** Asks the work to stop, although the claim is held. */
  tell(reason: unknown): void { this.#controller.abort(reason); }

  /** A request that was sent then has extended the lease. */
  succeeded(sent: number): void {
    if (sent + this.lease <= this.#until || this.#lost) return;
    this.#until = sent + this.lease;
    clearTimeout(this.#end);
    if (!this.#stopped) this.#end = setTimeout(() => this.#over(), Math.max(0, this.#until - now()));
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#beat);
    clearTimeout(this.#end);
  }

  /** The work runs again. */
  resume(): void {
    if (!this.#stopped || this.#lost) return;
    this.#stopped = false;
    this.#over();
    this.#next(0);
  }

  lose(cause: unknown): void { this.#lose(this.lostError('another request has the claim', cause)); }

  #next(delay: number): void {
    if (this.#stopped || this.#lost) return;
    clearTimeout(this.#beat); // of before a pause
    this.#beat = setTimeout(() => { void this.#run(); }, delay);
  }

  async #run(): Promise<void> {
    const sent = now();
    try {
      await this.extend(this.lease / 6);
      this.succeeded(sent);
      this.#next(Math.max(0, sent + this.lease / 3 - now()));
    } catch (error) {
      if (this.isLost(error)) this.lose(error);
      else this.#next(this.lease / 10);
    }
  }

  // A timer may come early by a millisecond.
  #over(): void {
    if (now() < this.#until) this.#end = setTimeout(() => this.#over(), Math.max(1, this.#until - now()));
    else this.#lose(this.lostError('the lease may have ended'));
  }

  #lose(reason: Error): void {
    if (this.#stopped || this.#lost) return;
    this.stop();
    this.#lost = true;
    this.#controller.abort(reason);
    this.onLost(reason);
  }
}
