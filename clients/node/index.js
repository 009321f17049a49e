export { Client, connect } from "./lib/client.js";
export {
  BelayError, ForbiddenError, FrozenError, IdUsedError, InvalidError, LockHeldError, LockLostError, NotFoundError, UnavailableError,
  UnknownOutcomeError,
} from "./lib/errors.js";
