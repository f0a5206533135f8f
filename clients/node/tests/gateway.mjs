// A payment provider for the README's code: it answers as the request says.
export const gateway = {
  async refund({ id, late, down }) {
    if (down) throw Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
    if (late) throw Object.assign(new Error('no answer'), { refundId: late });
    return { id };
  },
};
